"""What the demo prints: steps with their time, headings, checks. Colour only on a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

WIDTH = 46


class Screen:
    """Prints to one stream, line by line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.colour = self._stream.isatty() and "NO_COLOR" not in os.environ

    def line(self, text: str = "") -> None:
        """One line, at once."""
        print(text, file=self._stream, flush=True)

    def title(self, text: str) -> None:
        """A heading with an empty line above it."""
        self.line()
        self.line(self.bold(text))

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Print `what`, and how many seconds the block took or that it failed."""
        began = time.monotonic()
        dots = "." * max(3, WIDTH - len(what))
        print(f"{what} {self.faint(dots)} ", end="", file=self._stream, flush=True)
        try:
            yield
        except BaseException:
            self.line(self.red("failed"))
            raise
        self.line(f"{time.monotonic() - began:.1f} s")

    def check(self, *, ok: bool, what: str) -> None:
        """One check with its verdict."""
        self.line(f"  {self.green('ok    ') if ok else self.red('FAILED')}  {what}")

    def bold(self, text: str) -> str:
        return self._paint("1", text)

    def faint(self, text: str) -> str:
        return self._paint("2", text)

    def red(self, text: str) -> str:
        return self._paint("31", text)

    def green(self, text: str) -> str:
        return self._paint("32", text)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text
