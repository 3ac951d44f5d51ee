"""Deaths on purpose: what the scratch units of `inquest drill` run. Needs the standard library alone, and torch for the
deaths of a GPU.

Run as a file, by whatever interpreter: `python -I deaths.py CAUSE`.
"""

import ctypes
import os
import signal
import socket
import sys
from typing import NoReturn

_PIECE_BYTES = 8 << 20


def ready() -> None:
    """Tell systemd that the start is over (sd_notify(3))."""
    address = os.environ["NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        told.send(b"READY=1")
    print("drill: ready, and about to die", flush=True)


def wait() -> NoReturn:
    while True:
        signal.pause()


def stop_timeout() -> None:
    """Hears the stop and does not stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready()
    wait()


def killed() -> None:
    """Serves until somebody kills it."""
    ready()
    wait()


def hang() -> None:
    """Lives and gives no sign of it."""
    ready()
    wait()


def python_exception() -> None:
    ready()
    raise RuntimeError("a drill: this exception was asked for")


def native_crash() -> None:
    ready()
    ctypes.string_at(0)


def kernel_oom() -> None:
    """Takes memory until the limit of its unit ends it."""
    ready()
    taken = []
    while True:
        taken.append(b"x" * _PIECE_BYTES)


def cuda_error() -> None:
    """An index out of range, which the device notices and asserts."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    ready()
    torch.zeros(4, device="cuda")[torch.tensor([99], device="cuda")]
    torch.cuda.synchronize()


def cuda_oom() -> None:
    """Asks for more than any GPU has; takes none of it."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    ready()
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")


DEATHS = {
    "stop-timeout": stop_timeout,
    "external-signal": killed,
    "python-exception": python_exception,
    "native-crash": native_crash,
    "hang": hang,
    "kernel-oom": kernel_oom,
    "cuda-error": cuda_error,
    "cuda-oom": cuda_oom,
}

if __name__ == "__main__":
    DEATHS[sys.argv[1]]()
