"""A webhook receiver on loopback that does as it is told."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """`answers` are given one after the other, then 204. `hang` makes it read and never answer."""

    answers: list[int] = field(default_factory=list)
    hang: threading.Event | None = None
    got: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def accepted(self) -> list[dict[str, Any]]:
        return [request for request in self.got if request["answer"] < 300]


@contextmanager
def receiving(receiver: Receiver, port: int = 0) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            at = time.monotonic()
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.hang is not None:
                receiver.hang.wait(30)
                return
            answer = receiver.answers.pop(0) if receiver.answers else 204
            receiver.got.append(
                {
                    "at": at,
                    "path": self.path,
                    "headers": dict(self.headers),
                    "raw": body,
                    "body": json.loads(body),
                    "answer": answer,
                }
            )
            self.send_response(answer)
            if answer in (301, 307):
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook?team=gpu"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        if receiver.hang is not None:
            receiver.hang.set()
        server.shutdown()
        server.server_close()
        thread.join()
