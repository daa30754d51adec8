"""Webhooks: an outbox row in the event's transaction, sent later, signed, until it is taken."""
