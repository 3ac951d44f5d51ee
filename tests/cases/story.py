"""Journals told as stories: a small language in which each case of `tests/cases` is written.

A `Journal` is what journald of one machine wrote, in its order; a `Life` is one invocation of a unit in it. The clock
moves with each record by a millisecond, and by `wait`. What comes out are the lines of `journalctl -o json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

EPOCH_USEC = 1_776_000_000_000_000
"""The wall clock when the first boot of each story began."""

IDS = {
    "starting": "7d4958e842da4a758f6c1cdc7b36dcc5",
    "started": "39f53479d3a045ac8e11786248231fbf",
    "start-failed": "be02cf6855d2428ba40df7e9d022f03d",
    "stopping": "de5b426a63be47a7b6ac3eaac82e2f6f",
    "stopped": "9d1aaa27d60140bd96365438aad20286",
    "exit": "98e322203f7a4ed290d09fe03c09fe15",
    "failed": "d9b373ed55a64feb8242e02dbe79a49c",
    "success": "7ad2d189f7e94e70a38c781354912448",
    "skipped": "0e4284a0caca4bfc81c0bb6786972673",
    "restart": "5eb03494b6584870a536b337290809b3",
    "oom": "fe6faa94e7774663a0da52717891d8ef",
    "oomd": "d989611b15e44c9dbf31e3c81256e4ed",
    "spawn": "641257651c1b4ec9a8624d7a40a9e1e7",
    "core": "fc2e22bc6ee647b6b90729ab34a250b1",
    "dropped": "a596d6fe7bfa4994828e72309e95d61e",
    "missed": "e9bf28e6e834481bb6f48f548ad13606",
    "remains": "9be21e5d0ed4410f859f6bc35d9b4b7a",
}
NAMES = {
    1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 6: "ABRT", 7: "BUS", 9: "KILL", 11: "SEGV", 13: "PIPE", 15: "TERM",
}  # fmt: skip


_PACKAGE = "/opt/inquest/sglang/lib/python3.12/site-packages/sglang/srt"


def identifier(*parts: object) -> str:
    return sha256("/".join(map(str, parts)).encode()).hexdigest()[:32]


@dataclass(slots=True)
class Expected:
    """What the verdict on one run must say. What is empty is not asked for; no cause: no such run, or no crash."""

    unit: str
    invocation_id: str
    cause: str
    strength: str = ""
    subclass: str = ""
    phase: str = ""
    decisive: str = ""
    ruled_out: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    says_not: tuple[str, ...] = ()


@dataclass(slots=True)
class Journal:
    """The records of one machine, over one boot or more."""

    name: str
    about: str = ""
    lines: list[dict[str, Any]] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    gaps: list[dict[str, str]] = field(default_factory=list)
    usec: int = 90_000_000
    boot: int = 1
    _boot_began_usec: int = EPOCH_USEC
    _lives: int = 0

    @property
    def boot_id(self) -> str:
        return identifier(self.name, "boot", self.boot)

    def wait(self, seconds: float) -> None:
        self.usec += round(seconds * 1e6)

    def write(self, fields: dict[str, Any], source_usec: int | None = None, usec: int | None = None) -> None:
        """One record, now; or received at `usec`, which does not move the clock."""
        if usec is None:
            self.usec += 1000
        at = self.usec if usec is None else usec
        entry: dict[str, Any] = {
            "__CURSOR": f"s={self.boot:x};i={len(self.lines) + 1:x}",
            "__REALTIME_TIMESTAMP": str(self._boot_began_usec + at),
            "__MONOTONIC_TIMESTAMP": str(at),
            "_BOOT_ID": self.boot_id,
        }
        if source_usec is not None:
            entry["_SOURCE_MONOTONIC_TIMESTAMP"] = str(source_usec)
        self.lines.append(entry | {name: value if isinstance(value, list) else str(value)
                                   for name, value in fields.items() if value is not None})  # fmt: skip

    def clock(self) -> str:
        """The wall clock as SGLang prints it."""
        return f"{datetime.fromtimestamp((self._boot_began_usec + self.usec) / 1e6, UTC):%Y-%m-%d %H:%M:%S}"

    def kernel(self, text: str, *, late: float = 0.0) -> None:
        """A record of the kernel itself; `late` is by how many seconds journald received it after its stamp."""
        stamp = self.usec + 1000 - round(late * 1e6)
        fields = {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "SYSLOG_FACILITY": "0", "MESSAGE": text}
        self.write(fields, source_usec=stamp)

    def pid1(self, message: str, message_id: str = "", **fields: Any) -> None:
        own = {"_TRANSPORT": "journal", "_PID": "1", "_COMM": "systemd", "_SYSTEMD_UNIT": "init.scope", "_UID": "0"}
        self.write(own | ({"MESSAGE_ID": IDS[message_id]} if message_id else {}) | fields | {"MESSAGE": message})

    def service(self, unit: str, message: str, *, pid: int = 611, comm: str = "", **fields: Any) -> None:
        """A line of another service."""
        own = {"_TRANSPORT": "stdout", "_PID": pid, "_COMM": comm or unit.split(".")[0][:15], "_SYSTEMD_UNIT": unit}
        self.write(own | fields | {"MESSAGE": message})

    def reboot(self, down_seconds: float = 60.0) -> None:
        """Another boot: its clock begins anew, and its kernel says its first words."""
        self._boot_began_usec += self.usec + round(down_seconds * 1e6)
        self.boot += 1
        self.usec = 0
        self.kernel("Linux version 6.1.0 (builder) #1 SMP")
        self.wait(4)
        self.pid1("systemd 252 running in system mode")

    def gap(self, source: str, reason: str) -> None:
        """The daemon on that machine could not read a source."""
        self.gaps.append({"source": source, "reason": reason})

    def life(self, unit: str = "sglang-alder.service", **changes: Any) -> Life:
        self._lives += 1
        base = 3200 + 700 * self._lives + int(identifier(self.name)[:2], 16)
        given = {"main": base, "scheduler": base + 61, "detokenizer": base + 62}
        return Life(self, unit, identifier(self.name, unit, self._lives), **(given | changes))

    def oom(self, path: str, pid: int, comm: str, *, limit: str | None = None, late: float = 0.0,
            limit_kb: int = 25_165_824, rss_kb: int = 24_117_248) -> None:  # fmt: skip
        """The kernel's records of one OOM kill (5.x and 6.x): of a memory cgroup when its path is given as `limit`."""
        memcg = limit is not None
        what = "Memory cgroup out of memory" if memcg else "Out of memory"
        scope = f"oom_memcg={limit}" if memcg else "global_oom"
        self.kernel(f"{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", late=late)
        if memcg:
            self.kernel(f"memory: usage {limit_kb}kB, limit {limit_kb}kB, failcnt 211", late=late)
        self.kernel(
            f"oom-kill:constraint={'CONSTRAINT_MEMCG' if memcg else 'CONSTRAINT_NONE'},nodemask=(null),"
            f"cpuset={path.split('/')[-1]},mems_allowed=0,{scope},task_memcg={path},task={comm},pid={pid},uid=990",
            late=late,
        )
        self.kernel(
            f"{what}: Killed process {pid} ({comm}) total-vm:91234568kB, anon-rss:{rss_kb}kB, "
            f"file-rss:2048kB, shmem-rss:0kB, UID:990 pgtables:61440kB oom_score_adj:0",
            late=late,
        )

    def dump(self) -> str:
        """The lines of `journalctl -o json`."""
        return "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in self.lines)

    def dump_expected(self) -> str:
        runs = []
        for one in self.expected:
            asked = {name: getattr(one, name) for name in Expected.__dataclass_fields__}
            runs.append({name: value for name, value in asked.items() if value or name in ("cause", "invocation_id")})
        told = {"about": self.about, "runs": runs} | ({"gaps": self.gaps} if self.gaps else {})
        return json.dumps(told, ensure_ascii=False, indent=1) + "\n"


@dataclass(slots=True)
class Life:
    """One invocation of a unit: what PID 1 says of it, and what its processes write."""

    journal: Journal
    unit: str
    invocation_id: str
    main: int = 0
    scheduler: int = 0
    detokenizer: int = 0
    tag: str = ""
    slice_path: str = "/sglang.slice"
    throughput: float = 118.4

    @property
    def cgroup(self) -> str:
        return f"{self.slice_path}/{self.unit}"

    @property
    def title(self) -> str:
        return f"{self.unit} - SGLang server {self.unit.removeprefix('sglang-').removesuffix('.service')}"

    def wait(self, seconds: float) -> Life:
        self.journal.wait(seconds)
        return self

    def expect(self, cause: str, strength: str = "", **asked: Any) -> None:
        self.journal.expected.append(
            Expected(unit=self.unit, invocation_id=self.invocation_id, cause=cause, strength=strength, **asked)
        )

    # --- PID 1 ----------------------------------------------------------------------------------------------

    def pid1(self, message: str, message_id: str = "", **fields: Any) -> Life:
        self.journal.pid1(message, message_id, UNIT=self.unit, INVOCATION_ID=self.invocation_id, **fields)
        return self

    def starting(self) -> Life:
        return self.pid1(f"Starting {self.title}...", "starting", JOB_TYPE="start")

    def started(self) -> Life:
        return self.pid1(f"Started {self.title}.", "started", JOB_TYPE="start", JOB_RESULT="done")

    def start_failed(self, job_result: str = "failed") -> Life:
        return self.pid1(f"Failed to start {self.title}.", "start-failed", JOB_TYPE="start", JOB_RESULT=job_result)

    def stopping(self) -> Life:
        return self.pid1(f"Stopping {self.title}...", "stopping", JOB_TYPE="stop")

    def stopped(self, job_type: str = "stop") -> Life:
        return self.pid1(f"Stopped {self.title}.", "stopped", JOB_TYPE=job_type, JOB_RESULT="done")

    def exit(
        self, code: str, status: int, name: str = "", *, process: str = "Main", command: str = "ExecStart"
    ) -> Life:
        named = name or (NAMES.get(status, "") if code != "exited" else {0: "SUCCESS", 1: "FAILURE"}.get(status, ""))
        shown = f"{status}/{named}" if named else f"{status}/n/a"
        text = f"{self.unit}: {process} process exited, code={code}, status={shown}"
        return self.pid1(text, "exit", EXIT_CODE=code, EXIT_STATUS=status, COMMAND=command)

    def failed(self, result: str) -> Life:
        return self.pid1(f"{self.unit}: Failed with result '{result}'.", "failed", UNIT_RESULT=result)

    def success(self) -> Life:
        return self.pid1(f"{self.unit}: Deactivated successfully.", "success")

    def killed(self, signal: int = 9, result: str = "signal") -> Life:
        """Main died by a signal, and the unit came to rest."""
        return self.exit("killed", signal).failed(result)

    def timed_out(self, state: str, action: str = "Killing") -> Life:
        if state in ("start", "start-pre", "start-post"):
            return self.pid1(f"{self.unit}: {state} operation timed out. {action}.")
        return self.pid1(f"{self.unit}: State '{state}' timed out. {action}.")

    def systemd_kills(self, pid: int | None = None, comm: str = "python", signal: str = "SIGKILL") -> Life:
        return self.pid1(f"{self.unit}: Killing process {pid or self.main} ({comm}) with signal {signal}.")

    def client_kill(self, signal: str) -> Life:
        return self.pid1(
            f"{self.unit}: Sent signal {signal} to main process {self.main} (python) on client request."
        )  # fmt: skip

    def counted_oom(self) -> Life:
        return self.pid1(f"{self.unit}: A process of this unit has been killed by the OOM killer.", "oom")

    def restart(self, count: int = 1) -> Life:
        self.pid1(f"{self.unit}: Scheduled restart job, restart counter is at {count}.", "restart", N_RESTARTS=count)
        return self.stopped("restart")

    def remains(self, result: str, code: str, status: str, *, oom_kill: int | None = None) -> Life:
        """What our ExecStopPost= wrote, as root."""
        memory = {} if oom_kill is None else {
            "INQUEST_MEMORY_CURRENT": 41_943_040, "INQUEST_MEMORY_PEAK": 9_663_676_416,
            "INQUEST_MEMORY_MAX": "max", "INQUEST_MEMORY_EVENTS_OOM": oom_kill,
            "INQUEST_MEMORY_EVENTS_OOM_KILL": oom_kill,
        }  # fmt: skip
        self.journal.write(
            {
                "_TRANSPORT": "journal", "_PID": self.main + 400, "_UID": "0", "_COMM": "python",
                "_CMDLINE": "/opt/inquest/venv/bin/python -I -m service remains alder",
                "_SYSTEMD_UNIT": self.unit, "_SYSTEMD_INVOCATION_ID": self.invocation_id,
                "MESSAGE_ID": IDS["remains"], "INQUEST_INVOCATION_ID": self.invocation_id,
                "INQUEST_SERVICE_RESULT": result, "INQUEST_EXIT_CODE": code, "INQUEST_EXIT_STATUS": status,
                "MESSAGE": f"{self.unit} ended: {result}", **memory,
            }
        )  # fmt: skip
        return self

    def core(self, pid: int, comm: str, signal: int = 11) -> Life:
        """systemd-coredump caught a process of this unit."""
        self.journal.write(
            {
                "_TRANSPORT": "journal", "_PID": pid + 900, "_COMM": "systemd-coredum", "_UID": "980",
                "_SYSTEMD_UNIT": f"systemd-coredump@1-{pid}-0.service", "MESSAGE_ID": IDS["core"],
                "COREDUMP_PID": pid, "COREDUMP_COMM": comm, "COREDUMP_SIGNAL": signal, "COREDUMP_UNIT": self.unit,
                "COREDUMP_EXE": "/opt/inquest/sglang/bin/python3",
                "MESSAGE": f"Process {pid} ({comm}) of user 990 dumped core.",
            }
        )  # fmt: skip
        return self

    # --- the server -----------------------------------------------------------------------------------------

    def line(self, text: str, pid: int | None = None, **fields: Any) -> Life:
        """A line as it stands, of main unless another writer is given. All lines of one text come in one write."""
        writer = self.main if pid is None else pid
        comm, cmdline = {
            self.scheduler: ("sglang::schedul", f"sglang::scheduler{self.tag.replace(' ', '_')}"),
            self.detokenizer: ("sglang::detoken", "sglang::detokenizer"),
            self.main: ("python", "/opt/inquest/sglang/bin/python -m sglang.launch_server"),
        }.get(writer, ("python", ""))
        own = {
            "_TRANSPORT": "stdout", "_PID": writer, "_COMM": comm, "_CMDLINE": cmdline, "_UID": "990",
            "_SYSTEMD_UNIT": self.unit, "_SYSTEMD_INVOCATION_ID": self.invocation_id, "_SYSTEMD_CGROUP": self.cgroup,
        }  # fmt: skip
        for number, part in enumerate(text.split("\n")):
            self.journal.usec -= 990 if number else 0
            self.journal.write(own | fields | {"MESSAGE": part})
        return self

    def say(self, text: str, pid: int | None = None) -> Life:
        """A record of SGLang's: with its prefix, and the rank's tag where a scheduler writes it."""
        tag = self.tag if pid == self.scheduler else ""
        return self.line(f"[{self.journal.clock()}{tag}] {text}", pid)

    def sched(self, text: str) -> Life:
        return self.say(text, self.scheduler)

    def raised(self, where: str, error: str, pid: int | None = None, *, header: str = "", before: str = "") -> Life:
        """A traceback. `where` is `file.py:line in function; …`, outermost first; with a header, SGLang logged it."""
        writer = self.main if pid is None else pid
        frames = "".join(_frame(frame) for frame in where.split("; "))
        text = f"{before}Traceback (most recent call last):\n{frames}{error}"
        return self.say(f"{header}: {text}", writer) if header else self.line(text, writer)

    def scheduler_raised(self, where: str, error: str, before: str = "") -> Life:
        """The scheduler raised: SGLang logs it, the scheduler tells main by SIGQUIT and ends with status 0."""
        return self.raised(where, error, self.scheduler, header="Scheduler hit an exception", before=before)

    def self_kill(self, *, serving: bool = True, announced: bool = True, seconds: float = 5.2) -> Life:
        """Main was told that a child failed, and kills its tree and itself."""
        if serving:
            self.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        else:
            self.say("Received sigquit from a child process. It usually means the child failed.")
            seconds = 0.05
        if announced:
            if serving:
                self.say("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
            self.wait(seconds)
            self.say(f"kill_process_tree called: parent_pid={self.main}, include_parent=True, pid={self.main}")
        self.wait(0.03)
        return self.killed()

    def subprocess_died(self, code: int, child: str = "scheduler_0", pid: int | None = None) -> Life:
        whose = pid or (self.detokenizer if child.startswith("detok") else self.scheduler)
        return self.say(f"Subprocess {child} (pid={whose}) crashed with exit code {code}. "
                        "Triggering SIGQUIT for cleanup...")  # fmt: skip

    def sigterm(self) -> Life:
        return self.say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")

    def drain(self, remaining: int) -> Life:
        return self.say(f"Gracefully exiting... Remaining number of requests {remaining}. "
                        "Remaining requests remaining_rids=[].")  # fmt: skip

    def load(self, args: str = "") -> Life:
        """From the first line to the KV cache."""
        given = f", {args}" if args else ""
        self.wait(3.1).say(
            f"server_args=ServerArgs(model_path='/srv/models/birch-8b', tp_size=1, port=30000, "
            f"speculative_algorithm='EAGLE', speculative_num_steps=3{given}, watchdog_timeout=300)"
        )
        self.wait(2.4).sched("Load weight begin. avail mem=78.10 GB")
        self.wait(5.2).sched(
            "Load weight end. elapsed=5.19 s, type=LlamaForCausalLM, avail mem=62.91 GB, mem usage=15.19 GB."
        )
        return self

    def pools(self) -> Life:
        self.wait(0.4).sched("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 318204, K size: 19.42 GB, "
                             "V size: 19.42 GB")  # fmt: skip
        return self.sched("Memory pool end. avail mem=23.70 GB")

    def graphs(self) -> Life:
        self.wait(0.3).sched("Capture target verify CUDA graph begin. backend=cuda, num_tokens_per_req=4, "
                             "avail mem=23.60 GB")  # fmt: skip
        self.wait(4).sched("Capture target verify CUDA graph end. bs=[1, 2, 4, 8], elapsed=4.01 s, mem usage=0.41 GB, "
                           "avail mem=23.19 GB")  # fmt: skip
        return self

    def open(self) -> Life:
        """The socket is open; the warm-up follows."""
        self.sched("max_total_num_tokens=318204, chunked_prefill_size=8192, max_prefill_tokens=16384, "
                   "max_running_requests=48, context_len=8192, available_gpu_mem=23.19 GB")  # fmt: skip
        self.say(f"INFO:     Started server process [{self.main}]")
        return self.say("INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)")

    def ready(self) -> Life:
        self.wait(1.2).say("The server is fired up and ready to roll!")
        return self.started()

    def up(self, serve: int = 3, args: str = "") -> Life:
        """The whole start, and some work."""
        self.starting().load(args).pools().graphs().open().ready()
        return self.serve(serve)

    def serve(self, lines: int = 1, every: float = 2.0) -> Life:
        for _ in range(lines):
            self.wait(every).sched(
                f"Decode batch, #running-req: 3, #token: 2210, token usage: 0.01, accept len: 2.71, accept rate: 0.57, "
                f"cuda graph: True, gen throughput (token/s): {self.throughput:.2f}, #queue-req: 0"
            )
        return self


def _frame(frame: str) -> str:
    place, _, function = frame.partition(" in ")
    path, _, number = place.rpartition(":")
    return (
        f'  File "/opt/inquest/sglang/lib/python3.12/site-packages/sglang/srt/{path}", line {number}, in {function}\n'
    )
