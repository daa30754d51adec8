"""The four links of a turn. Each step looks at a view and drafts what follows: no I/O but reads."""
