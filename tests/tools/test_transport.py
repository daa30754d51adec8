"""Each outcome of the transport against a real socket, proven by what the server received."""

from __future__ import annotations

import math
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.tools.loopback import Downstream, answers, downstream, read_request, reply
from tools import Ambiguous, NotSent, Rejected, clock
from tools.errors import ReplyUnreadable
from tools.testing import make_context
from tools.transport import MAX_BODY_BYTES, PROVABLY_NOT_SENT, HttpReply, Transport
from tools.wire import GuardedSocket


def send(url: str, *, seconds: float = 5.0, send_by: float = 5.0, **more: Any) -> HttpReply:
    now = clock.now()
    context = make_context(deadline=now + seconds, send_by=now + send_by)
    return context.http.request("POST", url, json={"amount": "80.00 EUR"}, **more)


def test_a_reply_is_read_whole_and_the_write_carries_key_and_fence() -> None:
    raw = reply("201 Created", b'{"id": "R-1"}', "Content-Type: application/json")
    with downstream(answers(raw)) as server:
        got = send(server.url)
    assert (got.status, got.json(), got.headers["content-type"]) == (
        201,
        {"id": "R-1"},
        "application/json",
    )
    assert b"POST /refunds HTTP/1.1\r\n" in server.received
    assert b"Idempotency-Key: test-key\r\n" in server.received
    assert b"X-Agentcore-Fence: 1\r\n" in server.received
    assert server.received.endswith(b'{"amount": "80.00 EUR"}')
    assert server.connections == 1


def test_the_header_names_are_the_contexts_and_reads_carry_none() -> None:
    context = make_context(key_header="X-Request-Key", fence_header="X-Fence")
    with downstream(answers(reply("200 OK", b"{}"))) as server:
        context.http.request("POST", server.url)
    assert b"X-Request-Key: test-key\r\n" in server.received
    assert b"X-Fence: 1\r\n" in server.received
    with downstream(answers(reply("200 OK", b"{}"))) as server:
        context.http.request("GET", server.url)
    assert b"test-key" not in server.received


@pytest.mark.parametrize("header", ["idempotency-key", "X-AGENTCORE-FENCE", "Host"])
def test_a_tool_cannot_replace_the_key(header: str) -> None:
    with downstream(answers(reply("200 OK", b"{}"))) as server:
        with pytest.raises(NotSent, match="set by the runtime"):
            send(server.url, headers={header: "mine"})
        assert server.connections == 0


# --- provably not sent ---------------------------------------------------------------------


def test_a_refused_port_is_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(NotSent) as caught:
        send(f"http://127.0.0.1:{port}/")
    assert caught.value.error_class == "connection_refused"


def test_an_unknown_host_is_not_sent() -> None:
    with pytest.raises(NotSent) as caught:
        send("http://payments.invalid/")
    assert caught.value.error_class == "dns_failure"


def test_a_full_backlog_is_a_connect_timeout() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        try:
            for _ in range(4):  # a backlog of 0 holds a few, then the kernel drops new ones
                peer = socket.socket()
                peer.setblocking(False)
                peer.connect_ex(listener.getsockname())
                waiting.append(peer)
            with pytest.raises(NotSent) as caught:
                send(f"http://127.0.0.1:{listener.getsockname()[1]}/", send_by=0.3)
        finally:
            for peer in waiting:
                peer.close()
    assert caught.value.error_class == "connect_timeout"


def test_tls_to_a_plain_port_is_not_sent() -> None:
    requests: list[bytes] = []

    def behave(peer: socket.socket, _: Downstream) -> None:
        requests.append(peer.recv(4096))
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with downstream(behave) as server, pytest.raises(NotSent) as caught:
        send(server.url.replace("http:", "https:"))
    assert caught.value.error_class == "tls_handshake"
    assert b"80.00 EUR" not in b"".join(requests)


def test_a_hanging_tls_handshake_is_not_sent() -> None:
    def behave(peer: socket.socket, server: Downstream) -> None:
        server.released.wait(5)

    with downstream(behave) as server, pytest.raises(NotSent) as caught:
        send(server.url.replace("http:", "https:"), send_by=0.3)
    assert caught.value.error_class == "tls_handshake"


def test_send_by_is_checked_before_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(NotSent) as caught:
            send(f"http://127.0.0.1:{listener.getsockname()[1]}/", send_by=-0.001)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()  # nobody ever knocked
    assert caught.value.error_class == "send_by_passed"


def test_send_by_is_checked_before_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stood still after connecting must not send any more."""
    connect = Transport._connect

    def slow(self: Transport, parts: Any) -> Any:
        wire = connect(self, parts)
        wait = threading.Event()
        while clock.now() < self.send_by:
            wait.wait(0.01)
        return wire

    monkeypatch.setattr(Transport, "_connect", slow)
    with downstream(answers(reply("200 OK", b"{}"))) as server, pytest.raises(NotSent) as caught:
        send(server.url, send_by=0.2)
    assert caught.value.error_class == "send_by_passed"
    assert server.connections == 1
    assert bytes(server.received) == b""


def test_send_by_is_checked_before_every_further_write() -> None:
    ours, theirs = socket.socketpair()
    send_by = clock.now() + 0.05
    with ours, theirs:
        wire = GuardedSocket(ours, deadline=math.inf, send_by=send_by)
        wire.sendall(b"head")
        wait = threading.Event()
        while clock.now() < send_by:
            wait.wait(0.01)
        with pytest.raises(Ambiguous) as caught:
            wire.sendall(b"body")
        assert theirs.recv(100) == b"head"
    assert caught.value.error_class == "send_by_passed_midway"


def test_nothing_is_proven_after_an_earlier_write_of_the_same_call() -> None:
    context = make_context()
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = f"http://127.0.0.1:{free.getsockname()[1]}/"
    with downstream(answers(reply("404 Not Found", b"{}"))) as server:
        with pytest.raises(NotSent):
            context.http.request("POST", closed)  # nothing has left yet
        with pytest.raises(Rejected):
            context.http.request("POST", server.url).raise_for_write()
        with pytest.raises(Ambiguous) as caught:
            context.http.request("GET", closed)
        assert caught.value.error_class == "not_sent_after_write"
        with pytest.raises(Ambiguous, match="404"):
            context.http.request("GET", server.url).raise_for_write()


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("POST", "ftp://127.0.0.1/"),
        ("POST", "/only/a/path"),
        ("POST", "http://user:secret@127.0.0.1/"),
        ("POST", "http://127.0.0.1:99999/"),
        ("CONNECT", "http://127.0.0.1/"),
    ],
)
def test_a_request_that_cannot_be_built_is_not_sent(method: str, url: str) -> None:
    with pytest.raises(NotSent) as caught:
        make_context().http.request(method, url)
    assert caught.value.error_class == "request_invalid"


@pytest.mark.parametrize("path", ["/a b", "/line\r\nX-Evil: 1", "/\u00e9"])
def test_a_bad_path_is_not_sent(path: str) -> None:
    with downstream(answers(reply("200 OK", b"{}"))) as server, pytest.raises(NotSent) as caught:
        send(server.url + path)
    assert caught.value.error_class == "request_invalid"
    assert bytes(server.received) == b""


def test_a_bad_header_and_a_bad_body_are_not_sent() -> None:
    with downstream(answers(reply("200 OK", b"{}"))) as server:
        with pytest.raises(NotSent, match="header"):
            send(server.url, headers={"X-Note": "a\r\nX-Evil: 1"})
        with pytest.raises(NotSent, match="object"):
            make_context().http.request("POST", server.url, json={"x": object()})
    assert bytes(server.received) == b""


# --- sent, and nobody knows ----------------------------------------------------------------


def hang(peer: socket.socket, server: Downstream) -> None:
    read_request(peer, server)
    server.released.wait(5)


def drip(peer: socket.socket, server: Downstream) -> None:
    """One byte at a time, so that no single receive ever takes long."""
    read_request(peer, server)
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not server.released.wait(0.05):
        peer.sendall(b" ")


AMBIGUOUS = {
    "closed_without_reply": answers(b""),
    "connection_reset": answers(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", reset=True),
    "reply_cut": answers(b'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"id"'),
    "unreadable_status_line": answers(b"220 ready for mail\r\n\r\n"),
    "read_timeout": hang,
}


@pytest.mark.parametrize("word", AMBIGUOUS)
def test_after_the_first_byte_a_failure_is_ambiguous(word: str) -> None:
    with downstream(AMBIGUOUS[word]) as server, pytest.raises(Ambiguous) as caught:
        send(server.url, seconds=0.5)
    assert caught.value.error_class == word
    assert word not in PROVABLY_NOT_SENT
    assert server.received.endswith(b'"80.00 EUR"}')  # the server has the whole request
    assert server.connections == 1  # and nothing was sent a second time


@pytest.mark.parametrize(
    "raw",
    [
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"id"',
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
    ],
)
def test_other_broken_replies_are_ambiguous(raw: bytes) -> None:
    # Headers cut short look complete to the parser: then the body is missing or not JSON.
    with downstream(answers(raw)) as server, pytest.raises((Ambiguous, ReplyUnreadable)):
        send(server.url).json()
    assert server.connections == 1


def test_the_deadline_holds_for_the_whole_call() -> None:
    start = clock.now()
    with downstream(drip) as server, pytest.raises(Ambiguous) as caught:
        send(server.url, seconds=0.5)
    assert caught.value.error_class == "read_timeout"
    assert clock.now() - start < 2.0


def test_a_server_that_stops_reading_is_ambiguous() -> None:
    def behave(peer: socket.socket, server: Downstream) -> None:
        server.received += peer.recv(100)
        server.released.wait(5)

    now = clock.now()
    context = make_context(deadline=now + 1.5, send_by=now + 1.5)
    with downstream(behave) as server, pytest.raises(Ambiguous) as caught:
        context.http.request("POST", server.url, json={"note": "x" * 8_000_000})
    assert caught.value.error_class in {"send_timeout", "send_by_passed_midway"}
    assert len(server.received) > 0


def test_a_redirect_is_returned_and_not_followed() -> None:
    with downstream(answers(reply("200 OK", b"{}"))) as other:
        location = f"Location: {other.url}"
        with downstream(answers(reply("307 Temporary Redirect", b"", location))) as server:
            got = send(server.url)
        assert other.connections == 0
    assert got.status == 307
    with pytest.raises(Ambiguous, match="307"):
        got.raise_for_write()


def test_a_large_body_is_cut_at_the_socket_and_says_so() -> None:
    def behave(peer: socket.socket, server: Downstream) -> None:
        read_request(peer, server)
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(50):
            peer.sendall(b"x" * 1_000_000)

    with downstream(behave) as server:
        got = send(server.url)
    assert got.truncated
    assert len(got.body) == MAX_BODY_BYTES
    with pytest.raises(ReplyUnreadable) as caught:
        got.json()
    assert caught.value.effect_is_certain
    assert caught.value.error_class == "TOO_LARGE"


# --- judging a status ----------------------------------------------------------------------


@pytest.mark.parametrize("status", [300, 307, 408, 425, 429, 500, 502, 503, 504])
def test_these_statuses_prove_nothing(status: int) -> None:
    got = HttpReply(status, {"retry-after": "7"}, b'{"detail": "later"}', "POST")
    with pytest.raises(Ambiguous, match="later") as caught:
        got.raise_for_write()
    assert caught.value.error_class == f"http_{status}"
    assert caught.value.retry_after == 7.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 422])
def test_these_statuses_are_a_no(status: int) -> None:
    with pytest.raises(Rejected, match="order is closed") as caught:
        HttpReply(
            status, {}, b'{"error": {"message": "order is\\n closed"}}', "POST"
        ).raise_for_write()
    assert caught.value.error_class == f"http_{status}"


@pytest.mark.parametrize("body", [b"", b"<h1>No</h1>", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_message_is_made_of_any_body(body: bytes) -> None:
    with pytest.raises(Rejected, match=r"HTTP 400: \S"):
        HttpReply(400, {}, body, "POST").raise_for_write()


def test_success_passes_and_an_unreadable_202_is_no_certain_effect() -> None:
    HttpReply(204, {}, b"", "POST").raise_for_write()
    for status, method, certain in ((201, "POST", True), (202, "POST", False), (200, "GET", False)):
        with pytest.raises(ReplyUnreadable) as caught:
            HttpReply(status, {}, b"oops", method).json()
        assert caught.value.effect_is_certain is certain


# --- TLS -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", path, "-out", str(path) + ".crt", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_bytes(path.read_bytes() + Path(str(path) + ".crt").read_bytes())
    return path


def serve_tls(certificate: Path, raw: bytes) -> Any:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    def behave(peer: socket.socket, server: Downstream) -> None:
        with context.wrap_socket(peer, server_side=True) as encrypted:
            answers(raw)(encrypted, server)

    return behave


def test_tls_with_a_known_certificate_works_and_with_an_unknown_one_sends_nothing(
    certificate: Path,
) -> None:
    known = ssl.create_default_context(cafile=certificate)
    with downstream(serve_tls(certificate, reply("200 OK", b'{"ok": 1}'))) as server:
        url = server.url.replace("http:", "https:")
        out = Transport(deadline=clock.now() + 5, send_by=math.inf, tls=known)
        assert out.request("POST", url, json={"a": 1}).json() == {"ok": 1}
        seen = len(server.received)
        with pytest.raises(NotSent) as caught:
            send(url)
        assert caught.value.error_class == "tls_handshake"
        assert len(server.received) == seen
