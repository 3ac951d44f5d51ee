"""A daemon of its own on a booted systemd: how soon a death is told, and what watching costs.

    sudo python -m tests.bench.live [--deaths N] [--seconds S]

Deaths: a stand-in unit raises an exception; from PID 1's record of its exit to the webhook (told at once), and a
stand-in that is killed with SIGKILL, whose verdict waits for late evidence. Watching: resident memory and processor
time of the daemon, of its NVML reader apart, while a stand-in unit logs 0, 100 and 2,000 lines a second: nine lines
in ten are batch and access lines, as of a server under load. The stand-ins only print and die; nothing here needs
SGLang. Runs beside an installed inquestd, on units that it does not watch.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from urllib.request import urlopen

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "inquest-bench"
ADDRESS = ("127.0.0.1", 18642)

RAISES = """
import os, time
print("[2026-01-01 00:00:00] INFO:     Started server process [%d]" % os.getpid(), flush=True)
print("[2026-01-01 00:00:00] The server is fired up and ready to roll!", flush=True)
time.sleep(0.2)
raise RuntimeError("the size of tensor a (4) must match the size of tensor b (5)")
"""

WAITS = RAISES.replace("time.sleep(0.2)", "time.sleep(60)")

LOGS = """
import sys, time
rate = int(sys.argv[1])
batch = ("[2026-01-01 00:00:00 TP0] Decode batch, #running-req: 8, #token: 4096, token usage: 0.42, "
         "accept len: 2.81, accept rate: 0.60, cuda graph: True, gen throughput (token/s): 812.51, #queue-req: 0")
access = '[2026-01-01 00:00:00] INFO:     127.0.0.1:40312 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
other = "[2026-01-01 00:00:00] A line that says something else about request"
start, n = time.monotonic(), 0
while rate:
    for _ in range(max(1, rate // 50)):
        n += 1
        print(other if n % 10 == 0 else access if n % 2 else batch, n, flush=False)
    sys.stdout.flush()
    time.sleep(max(0.0, start + n / rate - time.monotonic()))
time.sleep(3600)
"""


class Webhook:
    """Receives alerts; `arrivals` holds the wall clock of each with its crash."""

    def __init__(self) -> None:
        arrivals: Queue[tuple[float, dict]] = Queue()

        class Receive(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                now = time.time()
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()
                arrivals.put((now, body))

            def log_message(self, *_: object) -> None:
                pass

        self.arrivals = arrivals
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Receive)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        Thread(target=self._server.serve_forever, daemon=True).start()


@contextmanager
def daemon(webhook: Webhook) -> Iterator[psutil.Process]:
    """An inquestd that watches this bench's units only."""
    state = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/var/tmp"))
    settings = state / "inquestd.toml"
    settings.write_text(
        f'units = ["{PREFIX}-*.service"]\nstate_dir = "{state}"\nlookback_seconds = 0\n'
        f"[api]\nport = {ADDRESS[1]}\n"
        f'[[alerts.webhooks]]\nname = "bench"\nurl = "{webhook.url}"\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "forensics", "daemon", "--settings", str(settings)],
        cwd=ROOT,
        stderr=(state / "log").open("w"),
    )
    try:
        watched = psutil.Process(process.pid)
        try:
            wait_for(lambda: any(c.laddr.port == ADDRESS[1] for c in watched.net_connections()), 30)
        except (TimeoutError, psutil.Error):
            raise SystemExit(f"the daemon did not start: {(state / 'log').read_text()}") from None
        yield watched
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(state)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.02)


def start(name: str, program: str, *arguments: str) -> str:
    unit = f"{PREFIX}-{os.getpid()}-{name}.service"
    command = ["/usr/bin/python3", "-u", "-c", program, *arguments]
    subprocess.run(
        ["systemd-run", "--quiet", "--collect", f"--unit={unit}", "--property=LogRateLimitIntervalSec=1us", *command],
        check=True,
    )
    return unit


def deaths(webhook: Webhook, count: int, program: str, *, kill: bool) -> list[float]:
    """Seconds from PID 1's record of the exit to the webhook, of each death."""
    measured = []
    what = "killed" if kill else "raising"
    for number in track(range(count), f"{count} deaths, {what}", console=Console(stderr=True), transient=True):
        unit = start(f"{what}-{number}", program)
        if kill:
            time.sleep(0.3)  # as long as the raising one lives, so that both are measured alike
            pid = subprocess.run(
                ["systemctl", "show", "-P", "MainPID", unit], capture_output=True, text=True, check=True
            )
            os.kill(int(pid.stdout), 9)
        try:
            arrived, body = webhook.arrivals.get(timeout=15)
        except Empty:
            raise SystemExit(f"no alert for {unit} within 15 s") from None
        crash = body.get("crash", body)
        exits = [piece["at"] for piece in crash["evidence"] if piece["kind"] == "process-exit"]
        measured.append(arrived - datetime.fromisoformat(exits[-1]).timestamp())
    return measured


def watching(webhook: Webhook, process: psutil.Process, rate: int, seconds: float) -> tuple[float, float, float]:
    """Percent of one core, MiB resident, MiB of the NVML reader, while a unit logs at this rate."""
    unit = start(f"logs-{rate}", LOGS, str(rate))
    try:
        time.sleep(3)  # the start itself is not what is measured
        before, began = run_seconds(process), time.monotonic()
        time.sleep(seconds)
        used = (run_seconds(process) - before) / (time.monotonic() - began)
        children = sum(child.memory_info().rss for child in process.children(recursive=True))
        resident = process.memory_info().rss
    finally:
        subprocess.run(["systemctl", "kill", "--signal=KILL", unit], check=True)
    seen = lines_seen(webhook.arrivals.get(timeout=15)[1])
    if seen < rate * seconds * 0.9:
        raise SystemExit(f"{unit} was to log {rate} lines a second, but the daemon counted {seen} in all")
    return used * 100, resident / 2**20, children / 2**20


def run_seconds(process: psutil.Process) -> float:
    """Time on a processor, from the scheduler's own clock: the tick of /proc/PID/stat misses short turns."""
    stats = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9


def lines_seen(body: dict) -> int:
    """How many lines of this run the daemon counted, by its timeline: else nothing was measured."""
    crash = body.get("crash", body)
    with urlopen(f"http://{ADDRESS[0]}:{ADDRESS[1]}/crashes/{crash['id']}/timeline") as answer:
        events = json.load(answer)["events"]
    return next((event["values"]["lines"] for event in events if event["kind"] == "log-stats"), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deaths", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    webhook = Webhook()
    with daemon(webhook) as process:
        told = Table(title="From PID 1's record of the exit to the webhook, seconds")
        for column in ("death", "n", "median", "99th percentile", "most"):
            told.add_column(column, justify="right")
        for name, program, kill in (("exception: told at once", RAISES, False), ("SIGKILL: waits", WAITS, True)):
            seconds = deaths(webhook, options.deaths if not kill else max(5, options.deaths // 5), program, kill=kill)
            p99 = statistics.quantiles(seconds, n=100, method="inclusive")[98]
            told.add_row(
                name, str(len(seconds)), f"{statistics.median(seconds):.3f}", f"{p99:.3f}", f"{max(seconds):.3f}"
            )
        cost = Table(title="What watching costs")
        for column in ("lines/s", "% of one core", "resident MiB", "NVML reader MiB"):
            cost.add_column(column, justify="right")
        for rate in (0, 100, 2000):
            cpu, resident, children = watching(webhook, process, rate, options.seconds)
            cost.add_row(str(rate), f"{cpu:.2f}", f"{resident:.1f}", f"{children:.1f}")
    Console().print(told, cost)


if __name__ == "__main__":
    main()
