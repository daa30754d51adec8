"""Clients of the REST API, as a backend team would write them. The tests run each of them."""
