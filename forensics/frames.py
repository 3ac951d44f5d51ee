"""What the frames of a traceback tell of where its process was: in a step of the start, or in the loop that serves.

An excerpt of a log has neither the start nor a batch in it: then the names of SGLang's functions are all there is.
"""

import re

from forensics.events import Event, Traceback

_SERVING = re.compile(
    r"event_loop|run_event_loop|forward_step|run_batch|process_batch_result|run_busy_loop|forward_thread_func"
    r"|forward_batch_(?:speculative_)?generation|get_next_batch_to_run|process_input_requests"
)
_STARTING = re.compile(
    r"load_model|load_weights|from_pretrained|init_|__init__$|launch_|get_config|initialize$|<module>$"
    r"|__post_init__$|prepare_server_args|from_cli_args"
)
_STEPS = (
    ("graph-capture", re.compile(r"graph_runner\.py:|in init_(?:cuda|device)_graphs?\b|in capture_one_batch_size\b")),
    ("kv-cache", re.compile(r"in init_memory_pool\b|in _?init_pools\b|/memory_pool\w*\.py:|in profile_max_num_token")),
    ("weights", re.compile(r"in (?:load_model|load_weights|process_weights_after_loading|create_weights)\b")),
)
"""Of nested steps the outer one comes first: a graph's capture runs the model's forward pass."""


def in_serving_loop(event: Event | None) -> bool:
    """Whether the exception came up through the loop in which batches are run. The warm-up goes through it too."""
    return isinstance(event, Traceback) and any(_SERVING.match(name) for name in _functions(event))


def in_start(event: Event | None) -> bool:
    """Whether it came up through a step of the start, and not through the loop that serves."""
    if not isinstance(event, Traceback) or in_serving_loop(event):
        return False
    return any(_STARTING.match(name) for name in _functions(event))


def step(event: Event | None) -> str:
    """`weights`, `kv-cache` or `graph-capture`, where the frames show that step of the start; else the empty string."""
    if not isinstance(event, Traceback) or in_serving_loop(event):
        return ""
    return next((name for name, pattern in _STEPS if any(pattern.search(frame) for frame in event.frames)), "")


def _functions(traceback: Traceback) -> list[str]:
    return [frame.rpartition(" in ")[2] for frame in traceback.frames]
