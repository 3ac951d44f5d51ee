"""Runs the API in a thread of the daemon. Addresses are bound before, so that a taken port is told at start."""

import socket
import threading
from pathlib import Path
from typing import Any

import uvicorn

from forensics.errors import InquestError

SOCKET_MODE = 0o660
BACKLOG = 128


class _Server(uvicorn.Server):
    """Ends the streams of events first: they would end by themselves only when their clients go."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        broadcast = getattr(self.config.app.state, "broadcast", None)  # type: ignore[union-attr]
        if broadcast is not None:
            broadcast.close()
        await super().shutdown(sockets)


class Serving:
    """A served API. `port` is the bound port, of use when 0 was asked for."""

    def __init__(self, server: uvicorn.Server, sockets: list[socket.socket], socket_path: Path | None) -> None:
        self._server = server
        self._socket_path = socket_path
        self.port: int = sockets[0].getsockname()[1]
        # A daemon thread: a client that keeps its connection must not hold up the end of the process.
        self._thread = threading.Thread(target=server.run, args=(sockets,), name="api", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self, timeout_seconds: float = 3.0) -> None:
        self._server.should_exit = True
        self._thread.join(timeout_seconds)
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)


def serve(app: Any, host: str, port: int, socket_path: Path | None = None) -> Serving:
    """Serves until closed. InquestError when an address cannot be bound."""
    sockets = [_tcp(host, port)]
    if socket_path is not None:
        try:
            sockets.append(_unix(socket_path))
        except InquestError:
            sockets[0].close()
            raise
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    return Serving(_Server(config), sockets, socket_path)


def _tcp(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named since asyncio turns off Nagle's delay (40 ms an answer) only where it is.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return _listen(bound, (host, port), f"{host}:{port}")


def _unix(path: Path) -> socket.socket:
    # What a killed daemon left behind. Only one daemon runs, systemd sees to that.
    path.unlink(missing_ok=True)
    bound = _listen(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), str(path), str(path))
    path.chmod(SOCKET_MODE)
    return bound


def _listen(bound: socket.socket, address: Any, shown: str) -> socket.socket:
    try:
        bound.bind(address)
        # From here on clients wait instead of being refused.
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise InquestError(
            "address-unusable",
            f"the API cannot listen on {shown}: {error.strerror}",
            "Set another `port` or `socket` under [api] in /etc/inquest/inquestd.toml, or stop what listens there.",
        ) from error
    return bound
