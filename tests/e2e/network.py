"""Requests to, and a webhook receiver in, the private network of a machine."""

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import httpx2

Result = TypeVar("Result")
_CLONE_NEWNET = 0x40000000


def inside(leader: int, action: Callable[[], Result]) -> Result:
    """Do something in the network of the machine whose PID 1 is `leader`.

    A thread enters the network and ends with the action: sockets made meanwhile stay there.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def enter_and_act() -> None:
        try:
            namespace = os.open(f"/proc/{leader}/ns/net", os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(namespace)
            results.append(action())
        except BaseException as error:  # raised again where the action was asked for
            errors.append(error)

    thread = threading.Thread(target=enter_and_act)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def request(leader: int, method: str, url: str, *, timeout: float = 10.0, json: object = None) -> httpx2.Response:
    return inside(leader, lambda: httpx2.request(method, url, json=json, timeout=timeout, trust_env=False))


@contextmanager
def stream(leader: int, url: str, *, json: object) -> Iterator[Iterator[str]]:
    """POST and read the answer's lines as they come."""
    with httpx2.Client(trust_env=False, timeout=60.0) as client:
        asked = client.build_request("POST", url, json=json)
        answer = inside(leader, lambda: client.send(asked, stream=True))
        try:
            yield answer.iter_lines()
        finally:
            answer.close()


class Webhook:
    """A receiver of alerts on a port inside the machine; keeps what was POSTed."""

    def __init__(self, leader: int, port: int) -> None:
        self.received: list[dict[str, Any]] = []
        received = self.received

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.append({"at": time.time(), "body": json.loads(body)})
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = inside(leader, lambda: ThreadingHTTPServer(("127.0.0.1", port), Receiver))
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
