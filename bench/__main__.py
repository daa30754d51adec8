"""`make bench ARGS="rest streams"`: the measurements by name; all of them without one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from bench import rest, streams

BENCHES: dict[str, Callable[[Sequence[str]], int]] = {"rest": rest.main, "streams": streams.main}


def main(names: Sequence[str]) -> int:
    """Run them one after the other. Returns 1 when one missed its limit, 2 for an unknown name."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.stderr.write(f"no such bench: {', '.join(unknown)}; there are {', '.join(BENCHES)}\n")
        return 2
    return max([BENCHES[name](()) for name in names or BENCHES])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
