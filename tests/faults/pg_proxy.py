"""A TCP proxy in front of PostgreSQL that can lose a connection at a chosen statement.

python -m tests.faults.pg_proxy --target 127.0.0.1:5432

It prints one JSON line with its address and that of its control port. A client of the control port
sends `{"port": local port of the connection, "how": "before" | "after"}`: the connection's next
statement is then not forwarded ("before"), or forwarded, executed and its reply dropped ("after").
It answers `ok` or `unknown`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from contextlib import suppress
from dataclasses import dataclass

CHUNK = 65536


@dataclass
class Link:
    """One client connection and its server connection. `how` is what to do with the next chunk."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    how: str = ""

    def cut(self) -> None:
        """Reset the client's connection, close the server's."""
        self.client.transport.abort()
        self.server.close()


class Proxy:
    """All links, by the local port of the client."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._links: dict[int, Link] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port: int = writer.get_extra_info("peername")[1]
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        link = self._links[port] = Link(writer, to_server)
        try:
            await asyncio.gather(self._forward(reader, link), self._back(from_server, link))
        finally:
            self._links.pop(port, None)
            link.cut()

    async def _forward(self, reader: asyncio.StreamReader, link: Link) -> None:
        while chunk := await self._read(reader):
            if link.how == "before":
                link.cut()
                return
            link.server.write(chunk)
        link.server.close()

    async def _back(self, reader: asyncio.StreamReader, link: Link) -> None:
        while chunk := await self._read(reader):
            if link.how == "after":  # it was executed: the server has answered
                link.cut()
                return
            link.client.write(chunk)
        link.client.close()

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes:
        with suppress(ConnectionError):
            return await reader.read(CHUNK)
        return b""

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        order = json.loads(await reader.readline())
        link = self._links.get(order["port"])
        if link is not None:
            link.how = order["how"]
        writer.write(b"unknown\n" if link is None else b"ok\n")
        await writer.drain()
        writer.close()


async def _main(target: str) -> None:
    host, port = target.rsplit(":", 1)
    proxy = Proxy(host, int(port))
    front = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    control = await asyncio.start_server(proxy.control, "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1] for server in (front, control)]
    ready = {"service": "pg_proxy", "url": f"127.0.0.1:{ports[0]}"}
    print(json.dumps({**ready, "control": f"127.0.0.1:{ports[1]}"}), flush=True)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, front.close)
    with suppress(asyncio.CancelledError):
        await front.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--target", required=True, help="host:port of the server")
    asyncio.run(_main(parser.parse_args().target))
