"""The REST interface: parse, call one use case or selector, answer. No rule lives here."""
