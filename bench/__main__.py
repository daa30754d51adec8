"""`make bench`. Nothing is measured yet; the numbers in the documents come from the tests."""

from __future__ import annotations

import sys


def main() -> int:
    """Say what there is. Returns the exit code."""
    sys.stdout.write(
        "There is no benchmark yet. What a run costs in commits and messages is counted by the "
        "tests in tests/flows.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
