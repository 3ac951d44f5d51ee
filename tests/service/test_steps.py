"""How far a start or a stop is, by the server's lines; and how long a stop may take."""

import json
from pathlib import Path

import pytest

from service.drain import words
from service.load import parse
from service.steps import in_flight, step
from service.stop_time import stop_seconds, stop_span

START = """\
server_args=ServerArgs(model_path='/m') | starting its processes
Init torch distributed begin. | joining its processes
Load weight begin. avail mem=139.13 GB | loading weights
Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:03<00:03,  1.7s/it] | loading weights (2 of 4 files)
Multi-thread loading shards: 1/1 | loading weights (2 of 4 files)
Load weight end. elapsed=0.2 s, type=LlamaForCausalLM, avail mem=139.07 GB | allocating the KV cache
Load weight begin. avail mem=139.07 GB | loading the draft's weights
Load weight end. elapsed=0.1 s, type=LlamaForCausalLMEagle, avail mem=139 GB | allocating the KV cache
KV Cache is allocated. dtype: torch.bfloat16, #tokens: 10, K size: 1.00 GB | allocating the KV cache
Memory pool end. avail mem=55.63 GB | preparing the runners
Capture target verify CUDA graph begin. backend=full, avail mem=55.31 GB | capturing CUDA graphs
Capturing batches (bs=4 avail_mem=55.2 GB):  50%|##  | 2/4 | capturing CUDA graphs
Capture target verify CUDA graph end. elapsed=1.22 s, avail mem=55.27 GB. | capturing CUDA graphs
max_total_num_tokens=100, chunked_prefill_size=8192, max_running_requests=16 | starting the HTTP server
INFO:     Application startup complete. | warming up
INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit) | warming up
Prefill batch, #new-seq: 1 | warming up
"""


def test_start_is_followed() -> None:
    reached = ""
    for row in START.splitlines():
        line, _, expected = row.rpartition(" | ")
        reached = step(f"[2026-11-29 10:00:00] {line}", reached)
        assert reached == expected, line


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("Gracefully exiting... Remaining number of requests 3. Remaining requests remaining_rids=['a'].", 3),
        ("Gracefully exiting... remaining number of requests 0", 0),
        ("SIGTERM received. signum=None frame=None. Draining requests and shutting down...", None),
    ],
)
def test_requests_that_a_stopping_server_still_has(line: str, number: int | None) -> None:
    assert in_flight(line) == number


@pytest.mark.parametrize(
    ("remaining", "limit", "line"),
    [
        (None, 300, "stopping: SGLang finishes the running requests, 7 s of at most 300 s"),
        (1, 300, "stopping: 1 request in flight, 7 s of at most 300 s"),
        (12, float("inf"), "stopping: 12 requests in flight, 7 s"),
    ],
)
def test_status_of_a_stop(remaining: int | None, limit: float, line: str) -> None:
    assert words(7.2, limit, remaining) == line


@pytest.mark.parametrize(
    ("toml", "span"),
    [
        ("", "5min"),
        ("[limits]\ntimeout_stop = '90s'", "90s"),
        ("[memory]\ncontext_length = 4096", "5min"),
        ("[memory]\ncontext_length = 32768", "11min"),
        ("[memory]\ncontext_length = 1000000", "15min"),
    ],
)
def test_time_for_a_stop(toml: str, span: str) -> None:
    spec = parse(f"model_path = '/nowhere'\n{toml}".encode(), Path("/s/demo.toml"))
    assert stop_span(spec) == span


def test_time_for_a_stop_by_the_models_own_context(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 40960}}))
    assert stop_seconds(parse(f"model_path = '{tmp_path}'".encode(), Path("/s/demo.toml"))) == 14 * 60
