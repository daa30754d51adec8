"""Where a webhook may not go: private addresses in every spelling, also behind a name."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from runs.webhooks.addresses import is_allowed, networks_of, url_problem
from runs.webhooks.wire import post
from tests.api.receiver import receiver

LOOPBACK = networks_of("127.0.0.0/8, ::1/128")
DENIED = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",  # noqa: S104
    "255.255.255.255",
    "224.0.0.1",
    "192.0.2.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "ff02::1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", DENIED)
def test_a_private_address_is_denied(address: str) -> None:
    assert not is_allowed(address, ())


def test_a_public_address_and_an_allowed_network_are_fine() -> None:
    assert is_allowed("8.8.8.8", ())
    assert is_allowed("2606:4700::1111", ())
    assert is_allowed("127.0.0.9", LOOPBACK)
    assert not is_allowed("10.0.0.1", LOOPBACK)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://example.com/x", "https"),
        ("ftp://example.com/x", "https"),
        ("https:///x", "name a host"),
        ("https://u:p@example.com/", "no user"),
        ("https://example.com/#x", "fragment"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com:99999/", "not an address"),
        ("https://127.0.0.1/", "private"),
        ("https://[::ffff:10.0.0.1]/", "private"),
        ("https://ex ample.com/", "percent-encoded"),
        ("https://exämple.com/", "percent-encoded"),
    ],
)
def test_a_bad_url_says_why(url: str, says: str) -> None:
    assert says in url_problem(url, ())


def test_a_good_url_is_fine() -> None:
    assert url_problem("https://example.com:8443/hook?a=1", ()) == ""
    assert url_problem("http://127.0.0.1:8000/hook", LOOPBACK) == ""


def _send(url: str, networks: Any = ()) -> Any:
    return post(url=url, payload={"a": 1}, headers={}, networks=networks, seconds=2)


def test_what_a_name_resolves_to_is_checked_and_that_address_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rebinding: each question gets another answer, and only the first was checked."""
    real = socket.getaddrinfo
    with receiver() as target:
        port = target.url.rsplit(":", 1)[1]
        asked: list[str] = []

        def rebinding(host: str, *args: Any, **more: Any) -> Any:
            if host != "rebind.test":
                return real(host, *args, **more)
            if more.get("flags"):
                raise socket.gaierror
            asked.append(host)
            return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", *args, **more)

        monkeypatch.setattr(socket, "getaddrinfo", rebinding)
        denied = _send(f"http://rebind.test:{port}/")
        assert denied.status is None
        assert denied.error.startswith("address_denied")
        assert target.messages == []
        asked.clear()
        assert _send(f"http://rebind.test:{port}/", LOOPBACK).status == 200
        assert asked == ["rebind.test"]


def test_odd_spellings_of_loopback_are_denied_after_resolution() -> None:
    with receiver() as target:
        port = target.url.rsplit(":", 1)[1]
        for host in ("127.1", "2130706433", "0x7f.1", "localhost", "[::ffff:127.0.0.1]"):
            sent = _send(f"http://{host}:{port}/")
            assert sent.status is None, host
        assert target.messages == []
