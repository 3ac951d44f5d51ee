"""Examples of answers, for OpenAPI. A test holds them against the shapes."""

from typing import Any

_CRASH: dict[str, Any] = {
    "id": "5f2c9be0a1d4",
    "unit": "sglang-demo.service",
    "server": "demo",
    "invocation_id": "5f2c9be0a1d44c0fb1d0a2c37d1e9f60",
    "boot_id": "0c9d8f54e27b4b0f9a6c1d5e3f7a2b81",
    "is_crash": True,
    "cause": "kernel-oom",
    "family": "kernel-oom",
    "strength": "confirmed",
    "subclass": "memcg",
    "summary": "The kernel's OOM killer killed the scheduler (pid 4410): the unit was at its memory limit of 24.0 GiB",
    "phase": "serving",
    "became_ready": True,
    "started_at": "2026-03-01T08:12:03.118204Z",
    "died_at": "2026-03-01T12:01:01.000412Z",
    "doing": {"figures": {"running-req": "31", "accept len": "2.71"}, "seconds_before_death": 1.5},
    "evidence": [
        {
            "role": "initiating",
            "kind": "oom-kill",
            "source": "kernel",
            "ref": "s=5e1f;i=3938700;b=0c9d;m=3938700;t=64e1;x=1",
            "at": "2026-03-01T12:01:00.998101Z",
            "message": "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
            "oom_memcg=/sglang.slice/sglang-demo.service,task_memcg=/sglang.slice/sglang-demo.service,"
            "task=python,pid=4410,uid=990",
            "why": "the victim is a process of this unit",
        }
    ],
    "ruled_out": [{"cause": "external-signal", "why": "the kernel itself sent the signal"}],
    "also": [],
    "gaps": [
        {
            "source": "gpu",
            "reason": "no NVIDIA driver on this machine",
            "from_usec": None,
            "to_usec": None,
            "from_at": None,
            "to_at": None,
        }
    ],
    "rejected": [
        {
            "claims": "systemd",
            "kind": "process-exit",
            "count": 2,
            "ref": "s=5e1f;i=3938690;b=0c9d;m=3938690;t=64e0;x=1",
            "at": "2026-03-01T12:00:59.204410Z",
            "message": "sglang-demo.service: Main process exited, code=exited, status=1/FAILURE",
            "written_by": "python [4321] of sglang-demo.service",
            "why": "only PID 1's own records are believed (_PID=1)",
        }
    ],
    "supervision": {
        "oom_policy": "kill",
        "restart": "on-failure",
        "next": "systemd starts it again by itself: restart number 1 was scheduled.",
    },
    "notes": [],
    "ground": [],
    "speculation": {"algorithm": "EAGLE3", "num_steps": "3", "eagle_topk": "1", "num_draft_tokens": "4"},
    "advice": ["Raise memory_max in the spec (it was 24.0 GiB), or have the server use less host memory."],
    "memory": {
        "sentence": "The unit's memory grew by 3.20 GiB over the last 60 s.",
        "figures": [{"what": "limit at the kill", "size_bytes": 25769803776, "source": "kernel"}],
    },
    "fingerprint": "3d0c2f7a91e4b586",
    "signature": "kernel-oom | memcg | scheduler",
    "settled": True,
    "revision": 1,
    "backfilled": False,
    "history": None,
    "run": {
        "result": "oom-kill",
        "exit_code": "killed",
        "exit_status": 9,
        "signal": "SIGKILL",
        "core_dumped": False,
        "main_pid": 4321,
        "n_restarts": 0,
    },
}
_IN_SHORT = {name: _CRASH[name] for name in ("id", "died_at", "is_crash", "cause", "family", "strength", "summary")}

_RUN: dict[str, Any] = {
    **{name: _CRASH[name] for name in ("id", "unit", "server", "invocation_id", "boot_id", "started_at")},
    "end": {
        "ended_at": _CRASH["died_at"],
        **{name: _CRASH[name] for name in ("is_crash", "cause", "strength", "became_ready", "summary")},
    },
    "before_id": "41c7d09be2f3",
    "changes": [{"name": "speculative_num_steps", "before": "3", "after": "5"}],
    "ready_after_seconds": 101.3,
    "max_total_num_tokens": 318204,
    "max_running_requests": 48,
    "memory": [{"what": "target weights", "size_bytes": 16320875724, "source": "SGLang: Load weight end"}],
    "peaks": [{"what": "host memory of the unit", "size_bytes": 25769803776, "source": "memory cgroup"}],
    "decoding": {
        "lines": 8120,
        "tokens": 873400,
        "throughput": [{"running_requests": "17+", "lines": 8120, "median": 1650.2, "best": 1911.0}],
        "accept_length": 2.71,
        "accept_length_least": 2.2,
        "accept_length_most": 3.1,
        "accept_rate": 0.57,
        "peak_running_requests": 36,
        "peak_queued_requests": 12,
        "peak_token_usage": 0.91,
    },
    "benches": [],
    "remark": None,
}

EXAMPLES: dict[str, Any] = {
    "crash": _CRASH,
    "crashes": {"crashes": [_CRASH], "next": "MTc3MjM2NjQ2MTAwMDQxMi40Mg"},
    "groups": {
        "groups": [
            {
                "fingerprint": _CRASH["fingerprint"],
                "count": 7,
                "first_at": "2026-02-27T03:44:10.201175Z",
                "last_at": _CRASH["died_at"],
                "servers": ["demo"],
                "last_id": _CRASH["id"],
                "cause": "kernel-oom",
                "family": "kernel-oom",
                "strength": "confirmed",
                "summary": _CRASH["summary"],
            }
        ],
        "total": 1,
    },
    "timeline": {
        **{name: _CRASH[name] for name in ("id", "unit", "invocation_id", "boot_id", "gaps")},
        "sources": ["kernel", "server", "systemd"],
        "events": [
            {
                "kind": "oom-kill",
                "at": "2026-03-01T12:01:00.998101Z",
                "monotonic_usec": 60000000,
                "source": "kernel",
                "ref": "s=5e1f;i=3938700;b=0c9d;m=3938700;t=64e1;x=1",
                "pid": None,
                "message": _CRASH["evidence"][0]["message"],
                "role": "initiating",
                "values": {"constraint": "CONSTRAINT_MEMCG", "oom_victim_pid": 4410},
            }
        ],
    },
    "servers": {
        "servers": [
            {
                "unit": "sglang-demo.service",
                "server": "demo",
                "running": {
                    "invocation_id": "9a01c2d3e4f54c0fb1d0a2c37d1e9f60",
                    "since": "2026-03-01T12:01:11.400000Z",
                    "not_answering_since": None,
                },
                "runs": 12,
                "crashes": 7,
                "last_run": _IN_SHORT,
                "last_crash": _IN_SHORT,
                "remark": None,
            }
        ]
    },
    "lives": {
        "since": "2026-03-01T00:00:00.000000Z",
        "until": "2026-03-02T00:00:00.000000Z",
        "lives": [
            {
                **{name: _CRASH[name] for name in ("id", "unit", "server", "started_at", "became_ready", "is_crash")},
                "ready_at": "2026-03-01T08:13:44.000000Z",
                "stopping_at": None,
                "ended_at": _CRASH["died_at"],
                "restarted": True,
                **{name: _CRASH[name] for name in ("cause", "family", "strength", "summary")},
            }
        ],
    },
    "runs": {"runs": [_RUN], "next": None},
    "run": {**_RUN, "configuration": {"model_path": "'/models/chat-8b'", "speculative_num_steps": "5"}},
    "tuning": {
        "server": "demo",
        "by": "speculative_num_steps",
        "rows": [
            {
                "value": "5",
                "runs": ["5f2c9be0a1d4"],
                "best": {"17+": 1911.0},
                "median": {"17+": 1650.2},
                "accept_length": 2.71,
                "max_running_requests": 48,
                "ready": 1,
                "crashes": 1,
                "ends": {"kernel-oom": 1},
            }
        ],
        "also_varied": ["mem_fraction_static"],
    },
    "health": {
        "status": "degraded",
        "version": "0.1.0",
        "started_at": "2026-03-01T08:00:00.000000Z",
        "units": ["sglang-*.service"],
        "read_to": "2026-03-01T12:01:12.000000Z",
        "open_runs": 1,
        "sources": [
            {"name": "kernel", "state": "reading", "detail": ""},
            {"name": "gpu", "state": "blind", "detail": "no NVIDIA driver on this machine"},
        ],
        "alerts": {"journal": {"delivered": 7}},
    },
    "alerts": {
        "channels": [
            {
                "name": "journal",
                "type": "journal",
                "waiting": 0,
                "delivered": 7,
                "superseded": 0,
                "abandoned": 0,
                "last_delivered_at": "2026-03-01T12:01:03.512000Z",
                "last_error": "",
            },
            {
                "name": "on-call",
                "type": "webhook",
                "waiting": 1,
                "delivered": 6,
                "superseded": 0,
                "abandoned": 0,
                "last_delivered_at": "2026-02-27T03:44:12.001000Z",
                "last_error": "the receiver answered 503 Service Unavailable",
            },
        ],
        "waiting": [
            {
                "channel": "on-call",
                "kind": "crash",
                "server": "demo",
                "unit": "sglang-demo.service",
                "id": "5f2c9be0a1d4",
                "count": 1,
                "attempts": 3,
                "due_at": "2026-03-01T12:01:03.500000Z",
                "next_try_at": "2026-03-01T12:01:11.203000Z",
                "why": "tried 3 times: the receiver answered 503 Service Unavailable",
            }
        ],
    },
    "ready": {"status": "ready", "not_seen": ["gpu"]},
}
