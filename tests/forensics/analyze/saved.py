"""Small saved files with values of their own, as people have them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from forensics.analyze import Analysis, analyze

UNIT = "sglang-maple.service"
BOOT = "3d0f2f8f5c0e4f6c9b1e2a7d8c9f0a1b"
INVOCATION = "7c1d9f0e2b3a4c5d8e6f7a8b9c0d1e2f"

ARGS = (
    "server_args=ServerArgs(model_path='/srv/models/maple', port=30000, api_key='sk-maple-very-secret-key', "
    "speculative_algorithm='EAGLE', speculative_num_steps=3)"
)
BATCH = (
    "Decode batch, #running-req: 2, #token: 913, token usage: 0.04, accept len: 2.61, accept rate: 0.54, "
    "cuda graph: True, gen throughput (token/s): 411.20, #queue-req: 1"
)
REFUSED = "AssertionError: max_running_request is zero"


def at(second: int) -> str:
    """A moment of the day on which everything here happens."""
    return f"2026-05-17 08:{second // 60 % 60:02d}:{second % 60:02d}"


def line(second: int, text: str, tag: str = "") -> str:
    return f"[{at(second)}{tag}] {text}"


def served(first: int = 0) -> list[str]:
    """A start of SGLang, and half a minute of work."""
    return [
        line(first, ARGS),
        line(first + 4, "Load weight begin. avail mem=78.61 GB"),
        line(
            first + 9, "Load weight end. elapsed=4.80 s, type=MapleForCausalLM, avail mem=61.02 GB, mem usage=17.59 GB."
        ),
        line(
            first + 10,
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 188411, K size: 11.50 GB, V size: 11.50 GB",
        ),
        line(first + 14, "INFO:     Started server process [4711]"),
        line(first + 14, "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"),
        line(first + 15, "The server is fired up and ready to roll!"),
        *(line(first + 16 + 2 * step, BATCH, " TP0") for step in range(8)),
    ]


def exception(second: int, error: str, header: str = "Scheduler hit an exception") -> list[str]:
    return [
        line(second, f"{header}: Traceback (most recent call last):", " TP0"),
        '  File "/opt/maple/sglang/srt/managers/scheduler.py", line 3120, in run_scheduler_process',
        "    scheduler.event_loop_overlap()",
        '  File "/opt/maple/sglang/srt/speculative/eagle_worker_v2.py", line 661, in forward_batch_generation',
        "    self.verify(batch)",
        *error.splitlines(),
        "",
        line(second, "SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
        line(second + 5, "kill_process_tree called: parent_pid=4711, include_parent=True, pid=4711"),
    ]


def child_died(second: int, code: int) -> list[str]:
    return [
        line(
            second,
            f"Subprocess scheduler_0 (pid=4755) crashed with exit code {code}. Triggering SIGQUIT for cleanup...",
        ),
        line(second, "SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
        line(second + 5, "kill_process_tree called: parent_pid=4711, include_parent=True, pid=4711"),
    ]


def stopped(second: int, remaining: int = 0) -> list[str]:
    """A stop that is asked for; with requests left, the log breaks off."""
    found = [
        line(second, "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."),
        line(
            second + 5, f"Gracefully exiting... Remaining number of requests {remaining}. Remaining requests rids=[]."
        ),
    ]
    if remaining == 0:
        found.append(line(second + 6, "kill_process_tree called: parent_pid=4711, include_parent=True, pid=4711"))
    return found


def oom(pid: int = 4755, comm: str = "sglang::schedul", cgroup: str = f"/system.slice/{UNIT}") -> list[str]:
    """The kernel's words on a kill at a unit's limit."""
    return [
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={cgroup},"
        f"task_memcg={cgroup},task={comm},pid={pid},uid=991",
        f"Memory cgroup out of memory: Killed process {pid} ({comm}) total-vm:9000000kB, anon-rss:7000000kB, "
        "file-rss:2000kB, shmem-rss:0kB, UID:991 pgtables:15000kB oom_score_adj:0",
    ]


def syslog(second: int, sender: str, message: str) -> str:
    return f"May 17 08:{second // 60 % 60:02d}:{second % 60:02d} maple {sender}: {message}"


def short(lines: Iterable[str], pid: int = 4711) -> list[str]:
    """The server's own lines as `journalctl -o short` shows them."""
    found, second = [], 0
    for text in lines:
        if text.startswith("[2026"):
            second = int(text[15:17]) * 60 + int(text[18:20])
        found.append(syslog(second, f"python3[{pid}]", text))
    return found


def systemd(second: int, message: str) -> str:
    return syslog(second, "systemd[1]", message)


def write(folder: Path, lines: Iterable[str], name: str = "saved.log") -> str:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def judged(folder: Path, lines: Iterable[str], unit: str | None = None) -> Analysis:
    return analyze([write(folder, lines)], unit)


def only(analysis: Analysis) -> dict[str, Any]:
    """The one crash that was found."""
    assert len(analysis.crashes) == 1, (analysis.reason, [crash["cause"] for crash in analysis.crashes])
    return analysis.crashes[0]


def verdict(analysis: Analysis) -> tuple[str, str | None]:
    crash = only(analysis)
    return crash["cause"], crash["strength"]


class Journal:
    """A journal with its trusted fields, entry by entry."""

    def __init__(self, boot: str = BOOT, begin_usec: int = 1_779_005_000_000_000) -> None:
        self.entries: list[dict[str, str]] = []
        self._boot, self._begin_usec = boot, begin_usec

    def add(self, second: float, message: str, **fields: str) -> "Journal":
        monotonic = 900_000_000 + int(second * 1_000_000)
        self.entries.append(
            {
                "__CURSOR": f"s=aa;i={len(self.entries):x};b={self._boot};m={monotonic:x};"
                f"t={self._begin_usec + monotonic:x};x={len(self.entries):x}",
                "__REALTIME_TIMESTAMP": str(self._begin_usec + monotonic),
                "__MONOTONIC_TIMESTAMP": str(monotonic),
                "_BOOT_ID": self._boot,
                "_HOSTNAME": "maple",
                "MESSAGE": message,
                **fields,
            }
        )
        return self

    def manager(self, second: float, message: str, **fields: str) -> "Journal":
        own = {"_PID": "1", "_TRANSPORT": "journal", "SYSLOG_IDENTIFIER": "systemd", "UNIT": UNIT,
               "INVOCATION_ID": INVOCATION}  # fmt: skip
        return self.add(second, message, **{**own, **fields})

    def server(self, second: float, message: str, pid: int = 4711, comm: str = "python3") -> "Journal":
        return self.add(
            second,
            message,
            _PID=str(pid),
            _COMM=comm,
            _TRANSPORT="stdout",
            SYSLOG_IDENTIFIER="python3",
            _SYSTEMD_UNIT=UNIT,
            _SYSTEMD_CGROUP=f"/system.slice/{UNIT}",
            _SYSTEMD_INVOCATION_ID=INVOCATION,
        )

    def kernel(self, second: float, message: str) -> "Journal":
        return self.add(second, message, _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel")

    def exited(self, second: float, code: str = "killed", status: str = "9/KILL", result: str = "signal") -> "Journal":
        self.manager(second, f"{UNIT}: Main process exited, code={code}, status={status}")
        return self.manager(second + 0.1, f"{UNIT}: Failed with result '{result}'.")

    def started(self) -> "Journal":
        self.manager(0, f"Started {UNIT} - SGLang server maple.")
        for text in served():
            self.server(int(text[15:17]) * 60 + int(text[18:20]) + 0.5, text)
        return self

    # --- the forms ------------------------------------------------------------------------------------------

    def json(self) -> bytes:
        return "".join(json.dumps(entry) + "\n" for entry in self.entries).encode()

    def pretty(self) -> bytes:
        return "".join(json.dumps(entry, indent=8) + "\n" for entry in self.entries).encode()

    def export(self) -> bytes:
        found = b""
        for entry in self.entries:
            for name, value in entry.items():
                data = value.encode()
                if "\n" in value:
                    found += name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"
                else:
                    found += name.encode() + b"=" + data + b"\n"
            found += b"\n"
        return found

    def verbose(self) -> bytes:
        found = ""
        for entry in self.entries:
            found += f"Sun 2026-05-17 08:03:20.000000 UTC [{entry['__CURSOR']}]\n"
            found += "".join(f"    {name}={value}\n" for name, value in entry.items() if not name.startswith("__"))
        return found.encode()
