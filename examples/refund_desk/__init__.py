"""The refund desk: one agent, three tools, and the two servers that they talk to."""
