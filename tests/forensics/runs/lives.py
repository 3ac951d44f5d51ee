"""Lives of a server as the journal tells them: entries for the tracker, from log lines in SGLang's own wording."""

from collections.abc import Iterable
from dataclasses import replace

from forensics.classify import classify
from forensics.coverage import RECORDED
from forensics.entry import Entry
from forensics.model import Crash
from forensics.tracker import Tracker

UNIT = "sglang-demo.service"
REALTIME_USEC = 1_772_366_400_000_000
"""2026-03-01 12:00 UTC, when the machine booted."""
STARTING, STARTED = "7d4958e842da4a758f6c1cdc7b36dcc5", "39f53479d3a045ac8e11786248231fbf"
EXITED, FAILED = "98e322203f7a4ed290d09fe03c09fe15", "d9b373ed55a64feb8242e02dbe79a49c"
STOPPING, SUCCESS = "de5b426a63be47a7b6ac3eaac82e2f6f", "7ad2d189f7e94e70a38c781354912448"

ARGS = {
    "model_path": "'/models/target'",
    "speculative_algorithm": "'EAGLE'",
    "speculative_draft_model_path": "'/models/draft'",
    "speculative_num_steps": "3",
    "speculative_eagle_topk": "1",
    "speculative_num_draft_tokens": "4",
    "mem_fraction_static": "0.7",
    "decode_log_interval": "40",
    "random_seed": "17",
}


def args_line(**changes: str) -> str:
    """`server_args=…` as the releases up to 0.5.22 print it."""
    pairs = ", ".join(f"{name}={value}" for name, value in (ARGS | changes).items())
    return f"server_args=ServerArgs({pairs})"


def start(*, tag: str = "", draft: bool = True, **changes: str) -> list[str]:
    """The lines of a start that comes to its end."""
    weights = [
        "Load weight begin. avail mem=93.10 GB",
        "Load weight end. elapsed=3.10 s, type=LlamaForCausalLM, avail mem=78.10 GB, mem usage=15.00 GB.",
    ]
    drafts = [
        "Load weight begin. avail mem=78.10 GB",
        "Load weight end. elapsed=0.20 s, type=LlamaForCausalLMEagle, avail mem=77.40 GB, mem usage=0.70 GB.",
    ]
    pool = [
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 210400, K size: 20.50 GB, V size: 20.50 GB",
        "Memory pool end. avail mem=36.40 GB",
    ]
    draft_pool = [
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 210400, K size: 1.25 GB, V size: 1.25 GB",
        "Memory pool end. avail mem=33.90 GB",
    ]
    graphs = [
        "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem=33.80 GB",
        "Capture target verify CUDA graph end. elapsed=1.20 s, mem usage=0.50 GB, avail mem=33.30 GB.",
        "Capture draft decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=33.30 GB",
        "Capture draft decode CUDA graph end. elapsed=0.90 s, mem usage=0.25 GB, avail mem=33.05 GB.",
    ]
    capacity = (
        "max_total_num_tokens=210400, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, "
        "context_len=8192, available_gpu_mem=33.05 GB"
    )
    steps = [*weights, *(drafts if draft else []), *pool, *(draft_pool if draft else []), *graphs, capacity]
    return [
        args_line(**changes),
        *(f"{tag}{step}" for step in steps),
        "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
        "The server is fired up and ready to roll!",
    ]


def decode(running: int, speed: float, accept: float | None = 2.5, rate: float | None = 0.5, queued: int = 0) -> str:
    spec = (
        "" if accept is None else f"accept len: {accept:.2f}, " + ("" if rate is None else f"accept rate: {rate:.2f}, ")
    )
    return (
        f"Decode batch, #running-req: {running}, #token: {running * 90}, token usage: 0.{running:02d}, {spec}"
        f"cuda graph: True, gen throughput (token/s): {speed:.2f}, #queue-req: {queued}"
    )


class Machine:
    """One machine's journal. `life` adds a whole run; `crashes` is what the daemon would store of it."""

    def __init__(self) -> None:
        self.usec = 10_000_000
        self.tracker = Tracker(["sglang-*.service"])
        self._written = 0
        self._lives = 0

    def entry(self, fields: dict[str, str], message: str) -> Entry:
        self.usec += 1000
        self._written += 1
        return Entry(
            cursor=f"s=5e;i={self._written:x}",
            boot_id="b0" * 16,
            monotonic_usec=self.usec,
            realtime_usec=REALTIME_USEC + self.usec,
            fields={**fields, "MESSAGE": message, "_BOOT_ID": "b0" * 16},
        )

    def wait(self, seconds: float) -> None:
        self.usec += round(seconds * 1e6)

    def pid1(self, invocation_id: str, message_id: str, message: str, **fields: str) -> Entry:
        own = {"_PID": "1", "_TRANSPORT": "journal", "UNIT": UNIT, "INVOCATION_ID": invocation_id}
        return self.entry({**own, "MESSAGE_ID": message_id, **fields}, message)

    def line(self, invocation_id: str, text: str) -> Entry:
        own = {
            "_PID": str(4000 + self._lives),
            "_TRANSPORT": "stdout",
            "_SYSTEMD_UNIT": UNIT,
            "_COMM": "python",
            "_CMDLINE": "python -m sglang.launch_server",
            "_SYSTEMD_INVOCATION_ID": invocation_id,
        }
        tag, _, rest = text.partition("|") if text.startswith(" TP") else ("", "", text)
        return self.entry(own, f"[2026-03-01 12:00:00{tag}] {rest}")

    def begin(self, lines: Iterable[str], *, ready_after: float = 30.0) -> str:
        """A run that goes on; its invocation id."""
        self._lives += 1
        invocation_id = f"{self._lives:012x}" + "0" * 20
        self.tracker.feed(self.pid1(invocation_id, STARTING, f"Starting {UNIT}"))
        for text in lines:
            if "fired up" in text:
                self.wait(ready_after)
            self.tracker.feed(self.line(invocation_id, text))
        return invocation_id

    def end(self, invocation_id: str, *, asked: bool = True) -> Crash:
        """The run's end as asked, or by SIGKILL from nobody knows where; what the daemon would store."""
        if asked:
            self.tracker.feed(self.pid1(invocation_id, STOPPING, f"Stopping {UNIT}", JOB_TYPE="stop"))
            self.tracker.feed(self.pid1(invocation_id, SUCCESS, f"{UNIT}: Deactivated successfully."))
        else:
            exited = {"EXIT_CODE": "killed", "EXIT_STATUS": "KILL", "COMMAND": "ExecStart"}
            self.tracker.feed(
                self.pid1(invocation_id, EXITED, "Main process exited, code=killed, status=9/KILL", **exited)
            )
            failed = {"UNIT_RESULT": "signal"}
            self.tracker.feed(self.pid1(invocation_id, FAILED, "Failed with result 'signal'.", **failed))
        run, timeline = self.tracker.judge_input(invocation_id, RECORDED)
        self.wait(5)
        return Crash(run=run, timeline=timeline, verdict=replace(classify(run, timeline), awaits=()))

    def life(self, lines: Iterable[str], *, asked: bool = True) -> Crash:
        return self.end(self.begin(lines), asked=asked)
