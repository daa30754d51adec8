"""A tool app of the flow and fault tests: agents that let the refund desk do the work."""
