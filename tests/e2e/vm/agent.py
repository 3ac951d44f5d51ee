"""Runs inside the virtual machine and does what the test says, over the second serial port.

One JSON object a line comes in, {"argv": […], "input": text, "put": {path: base64}, "now": epoch}, each key
optional, and one goes out, {"rc": exit status, "out": text}.
"""

import base64
import json
import os
import subprocess
import time
import tty
from pathlib import Path
from typing import Any

PORT = "/dev/ttyS1"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if "now" in request:
        time.clock_settime(time.CLOCK_REALTIME, request["now"])
    for name, content in request.get("put", {}).items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(content))
    if "argv" not in request:
        return {"rc": 0, "out": ""}
    done = subprocess.run(
        request["argv"],
        input=request.get("input", "").encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return {"rc": done.returncode, "out": done.stdout.decode(errors="replace")}


def main() -> None:
    port = os.open(PORT, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(port)
    print("agent is ready", flush=True)
    buffer = b""
    while True:
        buffer += os.read(port, 65536)
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            try:
                reply = answer(json.loads(line))
            except Exception as error:  # the test has to learn of it, whatever it is
                reply = {"rc": 255, "out": f"{type(error).__name__}: {error}"}
            out = json.dumps(reply).encode() + b"\n"
            while out:
                out = out[os.write(port, out) :]


if __name__ == "__main__":
    main()
