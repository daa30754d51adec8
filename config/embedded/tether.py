"""Becomes another program that ends when its parent does (Linux), as another account if wanted.

Run as `python -I -S tether.py PARENT_PID SIGNAL UID GID PROGRAM ARGUMENT...`; UID -1 keeps the
account. A program of its own instead of a `preexec_fn`: that is unsafe in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Change the account, tie the life, become the program. Exit code 127 when it cannot run."""
    parent, sig, uid, gid = (int(text) for text in sys.argv[1:5])
    try:
        if uid >= 0:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        if sys.platform == "linux":  # after the change of account, which would undo it
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, sig, 0, 0, 0)
            if os.getppid() != parent:  # it was gone before: nobody would tell us
                sys.exit(1)
        os.execv(sys.argv[5], sys.argv[5:])  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"{sys.argv[5]}: {error}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
