"""Inquest on a booted machine as a test sees it: its servers, its API, its alerts."""

import json
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2

from deploy.nspawn import Machine
from tests.e2e import network

API = "http://127.0.0.1:8642"
Crash = dict[str, Any]
Found = TypeVar("Found")


def until(found: Callable[[], Found | None], what: str, *, seconds: float) -> Found:
    """The first answer that is not None or False; AssertionError that names it when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        answer = found()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


def decisive(crash: Crash) -> list[str]:
    """The messages of the records that the verdict calls initiating."""
    return [str(e["message"]) for e in crash["evidence"] if e["role"] == "initiating"]


@dataclass(frozen=True, slots=True)
class Run:
    """One life of a unit."""

    invocation_id: str
    main_pid: int


@dataclass(frozen=True, slots=True)
class Server:
    """A server's unit on a machine; pids are the machine's own."""

    machine: Machine
    name: str

    @property
    def unit(self) -> str:
        return f"sglang-{self.name}.service"

    def put_spec(self, text: str) -> None:
        path = self.machine.root / f"etc/inquest/servers/{self.name}.toml"
        path.write_text(text)
        self.machine.run("systemctl", "daemon-reload")

    def take_away(self) -> None:
        """Stop it, and leave nothing of it on the machine."""
        self.stop()
        (self.machine.root / f"etc/inquest/servers/{self.name}.toml").unlink(missing_ok=True)
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "reset-failed", self.unit, check=False)

    def start(self, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`systemctl start`, which returns when the server answers or has failed."""
        return self.machine.run("systemctl", "start", self.unit, check=check, timeout=400)

    def stop(self) -> None:
        self.machine.run("systemctl", "stop", self.unit, timeout=200)

    def restart(self) -> None:
        self.machine.run("systemctl", "restart", self.unit, timeout=400)

    def serving(self) -> Run:
        """Start it, or wait for its restart, and return the life that serves."""
        until(lambda: self.show("ActiveState") != "deactivating", f"{self.unit} has ended", seconds=120)
        self.start()
        return self.current()

    def current(self) -> Run:
        properties = self.show("InvocationID", "MainPID")
        return Run(properties["InvocationID"], int(properties["MainPID"]))

    def show(self, *properties: str) -> Any:
        """The unit's properties: a dictionary, or the value where only one was asked for."""
        out = self.machine.run("systemctl", "show", self.unit, "--property", ",".join(properties)).stdout
        values = dict(line.partition("=")[::2] for line in out.splitlines())
        return values[properties[0]] if len(properties) == 1 else values

    def ended(self, run: Run, *, seconds: float) -> None:
        """Wait until that life is over: its main process gone, and its unit not in it any more."""

        def over() -> bool:
            now = self.show("InvocationID", "MainPID", "ActiveState")
            gone = now["MainPID"] in ("0", "") or now["InvocationID"] != run.invocation_id
            return bool(gone and now["ActiveState"] != "deactivating")

        until(over, f"{self.unit} ends", seconds=seconds)

    def child(self, title: str) -> int:
        """The pid of main's child whose title begins so, for example `sglang::scheduler`."""
        children = self.machine.run("ps", "--ppid", str(self.current().main_pid), "-ww", "-o", "pid=,args=").stdout
        for line in children.splitlines():
            pid, args = line.split(None, 1)
            if args.startswith(title):
                return int(pid)
        raise AssertionError(f"{self.unit} has no process {title}; it has:\n{children}")

    def kill(self, pid: int, signal: str) -> None:
        """As somebody on the machine would, with kill(1)."""
        self.machine.run("kill", "-s", signal, str(pid))

    def journal(self, *options: str) -> str:
        """What systemd and the server logged for the unit."""
        return self.machine.run("journalctl", "--no-pager", "-o", "cat", "-u", self.unit, *options).stdout

    def post(self, path: str, body: object) -> httpx2.Response:
        return network.request(self.machine.leader, "POST", self.url(path), json=body, timeout=60.0)

    def post_deadly(self, path: str, body: object) -> None:
        """A request that the server does not outlive, and therefore may not answer."""
        with suppress(httpx2.TransportError):
            self.post(path, body)

    def stream(self, path: str, body: object) -> AbstractContextManager[Iterator[str]]:
        return network.stream(self.machine.leader, self.url(path), json=body)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{tomllib.loads(self.spec).get('port', 30000)}{path}"

    @property
    def spec(self) -> str:
        return (self.machine.root / f"etc/inquest/servers/{self.name}.toml").read_text()


@dataclass(frozen=True, slots=True)
class Inquest:
    """The daemon on a machine and what it told."""

    machine: Machine
    webhook: network.Webhook | None = None

    def server(self, name: str) -> Server:
        return Server(self.machine, name)

    def get(self, path: str) -> Any:
        answer = network.request(self.machine.leader, "GET", API + path)
        answer.raise_for_status()
        return answer.json()

    def crashes(self, unit: str | None = None) -> list[Crash]:
        """Newest first, each once."""
        crashes: list[Crash] = self.get("/crashes?limit=200")["crashes"]
        return [crash for crash in crashes if unit in (None, crash["unit"])]

    def crash_of(self, run: Run, *, seconds: float = 20.0) -> Crash:
        """The one settled verdict on the end of that life."""

        def settled() -> Crash | None:
            mine = [c for c in self.crashes() if c["invocation_id"] == run.invocation_id]
            assert len(mine) <= 1, f"{len(mine)} crashes of one run"
            return mine[0] if mine and mine[0]["settled"] else None

        return until(settled, f"a verdict on {run.invocation_id}", seconds=seconds)

    def newest_crash(self, server: Server, *, seconds: float = 20.0) -> Crash:
        """The last settled verdict on a server that has never run before this test."""

        def settled() -> Crash | None:
            mine = self.crashes(server.unit)
            return mine[0] if mine and mine[0]["settled"] else None

        return until(settled, f"a verdict on {server.unit}", seconds=seconds)

    def clean_end_of(self, run: Run) -> Crash:
        """The verdict on a life that ended as asked: kept, but not among the crashes."""

        def found() -> Crash | None:
            answer = network.request(self.machine.leader, "GET", f"{API}/crashes/{run.invocation_id}")
            return answer.json() if answer.status_code == 200 else None

        return until(found, f"the clean end of {run.invocation_id}", seconds=20.0)

    def answers(self) -> bool:
        try:
            return bool(self.get("/healthz")["version"])
        except httpx2.TransportError:
            return False

    def not_answering(self, server: Server) -> str | None:
        """Since when a server that runs has not answered; None while it answers."""
        (one,) = [one for one in self.get("/servers")["servers"] if one["unit"] == server.unit]
        running: dict[str, Any] = one["running"] or {}
        return running.get("not_answering_since")

    def daemon_pid(self) -> int:
        out = self.machine.run("systemctl", "show", "inquestd.service", "--property", "MainPID", "--value").stdout
        return int(out)

    def alerts(self, run: Run) -> list[dict[str, Any]]:
        """What the webhook was sent about that life."""
        assert self.webhook is not None, "this machine has no webhook"
        bodies = [alert["body"] for alert in self.webhook.received]
        return [body for body in bodies if (body["crash"] or {}).get("invocation_id") == run.invocation_id]

    def living(self, run: Run) -> list[dict[str, Any]]:
        """What the webhook was sent about that life while it lasted."""
        assert self.webhook is not None, "this machine has no webhook"
        bodies = [alert["body"] for alert in self.webhook.received]
        return [body for body in bodies if body["details"].get("invocation_id") == run.invocation_id]

    def hangs(self, run: Run) -> list[dict[str, Any]]:
        """The journal's records that the server of that life does not answer."""
        match = [f"_SYSTEMD_INVOCATION_ID={run.invocation_id}", "INQUEST_HANG_STATE=not-answering"]
        lines = self.machine.run("journalctl", "--output=json", "--all", *match).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def told(self, run: Run, *, seconds: float = 10.0) -> list[dict[str, Any]]:
        """Alerts on that life, once there is one."""
        return until(lambda: self.alerts(run) or None, f"an alert about {run.invocation_id}", seconds=seconds)
