#!/bin/sh
# Makes .venv from requirements.lock: `sh config/bootstrap.sh [python]`, called by the Makefile.
# Needs python3 (3.11 or newer) with pip. Downloads no Python; every package is checked by hash.
set -eu
cd "$(dirname "$0")/.."
python="${1:-python3}"
venv=.venv
export UV_PYTHON_DOWNLOADS=never UV_SYSTEM_CERTS=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

command -v "$python" >/dev/null 2>&1 || fail \
    "$python was not found. Install Python 3.11 or newer (Debian: apt-get install python3 python3-pip)," \
    "or name one: make demo PYTHON=/path/to/python3.12"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail \
    "$python is $("$python" -V 2>&1), but Python 3.11 or newer is needed." \
    "Name a newer one: make demo PYTHON=python3.12"
"$python" -m pip --version >/dev/null 2>&1 || fail \
    "$python has no pip. Install it (Debian: apt-get install python3-pip), then try again."

# Without pip inside: `pip --python` of the outer one fills it. So Debian's python3-venv is not needed.
if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    echo "Making $venv with $("$python" -V 2>&1) ..."
    rm -rf "$venv"
    "$python" -m venv --without-pip "$venv" || fail \
        "The environment $venv could not be made (see above)." \
        "Debian: apt-get install python3-venv, then try again."
fi

outer_pip() {
    "$python" -m pip --python "$venv/bin/python" install --quiet --require-hashes "$@"
}

# uv does not read pip's configuration: hand it the index that this machine's pip uses.
index="$("$python" -m pip config get global.index-url 2>/dev/null || true)"
[ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"

echo "Installing the packages of requirements.lock ..."
# uv is five times as fast as pip. It is pinned by hash in the lock like everything else.
awk '/^[^ #]/ { on = /^uv==/ } on' requirements.lock > "$venv/uv.lock"
if { "$venv/bin/uv" --version >/dev/null 2>&1 || outer_pip -r "$venv/uv.lock"; } &&
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r requirements.lock
then
    :
else
    echo "uv could not do it; trying pip ..."
    outer_pip -r requirements.lock || fail \
        "The packages could not be installed (see above). This needs a package index once:" \
        "check the network and the proxy, then try again. Nothing else is fetched later."
fi
touch "$venv/.ready"
