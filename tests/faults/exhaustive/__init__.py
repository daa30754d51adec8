"""Fail at every I/O boundary of a run, one trial a boundary. See `docs/reliability.md`."""
