"""Where a webhook may go: public addresses, and the networks that the operator allows."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_HIDES_IPV4 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "::/96",  # IPv4-compatible
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # NAT64, local use
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
    )
)
"""Forms of IPv6 that carry an IPv4 address: what they lead to cannot be told from here."""


def networks_of(text: str) -> tuple[Network, ...]:
    """The networks in a comma-separated list such as `127.0.0.0/8,10.1.0.0/16`.

    Raises ValueError.
    """
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())


def is_allowed(text: str, networks: Iterable[Network]) -> bool:
    """Whether a connection to this literal address may be made."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if any(address.version == net.version and address in net for net in networks):
        return True
    if address.version == 6 and any(address in net for net in _HIDES_IPV4):
        return False
    return address.is_global and not address.is_multicast


def url_problem(url: str, networks: Iterable[Network]) -> str:
    """Why an endpoint may not have this address, or "". Names are resolved when it is called."""
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        return "has characters that must be percent-encoded."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not an address: {error}."
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "must begin with https:// and name a host."
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "must carry no user, password or fragment."
    if port == 0:
        return "has port 0."
    literal = _literal(parts.hostname)
    allowed = literal is not None and is_allowed(literal, networks)
    if literal is not None and not allowed:
        return "leads to a private address, which this installation does not allow."
    private = any(literal and ipaddress.ip_address(literal) in net for net in networks)
    if parts.scheme == "http" and not private:
        return "must use https."
    return ""


def _literal(host: str) -> str | None:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None
