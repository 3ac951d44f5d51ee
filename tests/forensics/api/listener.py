"""A client of `/events` that speaks the protocol itself: what arrives is what was sent."""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any


@dataclass(frozen=True)
class Heard:
    id: str
    kind: str
    data: Any


class Listener:
    """One connection. `blocks` are the raw ones, comments too; `events` those that carry data."""

    def __init__(self, port: int, last_id: str | None = None) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=10)
        self._connection.request("GET", "/events", headers={"Last-Event-ID": last_id} if last_id else {})
        self.answer: HTTPResponse = self._connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.last_id = last_id or ""

    def close(self) -> None:
        sock = self._connection.sock
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
        self.answer.close()
        self._connection.close()

    def blocks(self) -> Iterator[list[str]]:
        block: list[str] = []
        while line := self.answer.readline():
            text = line.decode().rstrip("\n")
            if text:
                block.append(text)
            elif block:
                yield block
                block = []

    def events(self) -> Iterator[Heard]:
        for block in self.blocks():
            fields = dict(line.split(": ", 1) for line in block if not line.startswith(":"))
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                yield Heard(self.last_id, fields.get("event", "message"), json.loads(fields["data"]))
