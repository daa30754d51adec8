"""Model clients: one call, one request on the wire, one value back."""
