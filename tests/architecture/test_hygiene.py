"""Nothing of one machine in the repository; migrations that stay readable years later."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.architecture.source import ROOT, imported, name_of, tracked_files

OF_ONE_MACHINE = {
    "a home directory": re.compile(r"(?<![\w.])/(?:home|Users)/[A-Za-z][\w.-]*/|[A-Z]:\\Users\\"),
    "the home of root": re.compile(r"(?<![\w.])/root/\w"),
    "the address of a package index": re.compile(r"https?://[^\s\"'<>]+/simple\b"),
    "an index option": re.compile(
        r"--(?:extra-)?index-url[= ]+\S*://|^\s*index-url\s*=", re.MULTILINE
    ),
}
SKIPPED = {"tests/architecture/test_hygiene.py"}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""  # a picture


def _here() -> list[str]:
    """Words that name this very machine: where the checkout and Python are, its package index."""
    folders = [str(ROOT), sys.prefix, str(Path.home())]
    words = [folder for folder in folders if len(Path(folder).parts) > 2]
    for variable in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL"):
        host = urlsplit(os.environ.get(variable, "")).hostname
        if host and host not in {"pypi.org", "localhost", "127.0.0.1"}:
            words.append(host)
    return words


def test_no_file_names_a_machine_or_a_package_index() -> None:
    here = _here()
    found = []
    for path in tracked_files():
        if name_of(path) in SKIPPED:
            continue
        text = _text(path)
        found += [
            f"{name_of(path)}: {what}" for what, p in OF_ONE_MACHINE.items() if p.search(text)
        ]
        found += [f"{name_of(path)}: a path or host of this machine" for w in here if w in text]
    assert found == [], "another reader has another machine"


def test_migrations_import_no_code_that_may_change() -> None:
    allowed = {"agentcore.ids", "agentcore.ids.new_id"}  # the default of the primary keys
    found = [
        f"{name_of(path)}: {name}"
        for app in ("runs", "approvals")
        for path in sorted((ROOT / app / "migrations").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in imported(node)
        if name.split(".")[0] in {"agentcore", "tools", "approvals", "runs", "config"}
        and name not in allowed
    ]
    assert found == [], "a migration holds the values of its day"
