"""The pages written by hand, and the blocks, links, paths and tables in them.

A fenced block may carry a tag after its language: `file=NAME` is a file of a tool app, `run` is
executed, `process=NAME` is started, `shape=NAME` shows members that a real answer has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"docs/states.md", "docs/requirements.md", "docs/reliability.md"}

_BLOCK = re.compile(r"^```(\w+)(?: ([\w=./-]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: where it stands and what it says. `line` counts from 1."""

    page: str
    line: int
    language: str
    tag: str
    text: str

    @property
    def value(self) -> str:
        """What stands behind the `=` of the tag."""
        return self.tag.partition("=")[2]

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def pages() -> dict[str, str]:
    """Name -> text of every page that people write."""
    paths = [*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/**/*.md"))]
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return {name: (ROOT / name).read_text("utf-8") for name in names if name not in GENERATED}


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = pages()[page]
    return [
        Block(page, text[: found.start()].count("\n") + 1, found[1], found[2] or "", found[3])
        for found in _BLOCK.finditer(text)
    ]


def tagged(kind: str, language: str = "") -> list[Block]:
    """The blocks of all pages whose tag is `kind` or begins with `kind=`."""
    return [
        block
        for page in pages()
        for block in blocks(page)
        if block.tag.partition("=")[0] == kind and language in ("", block.language)
    ]


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return _BLOCK.sub("", pages()[page])


def links(page: str) -> list[str]:
    return _LINK.findall(prose(page))


def code_words(page: str) -> list[str]:
    """What stands between single backticks."""
    return _CODE.findall(prose(page))


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def table_rows(page: str, first: str) -> list[list[str]]:
    """The cells of every row of the tables whose first heading is `first`."""
    rows: list[list[str]] = []
    inside = False
    for line in prose(page).splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == first:
            inside = True
        elif inside and not set(cells[0]) <= set("-: "):
            rows.append(cells)
    return rows
