"""configuration-error: refused at start: arguments, option pairs, a missing or unfit model or draft, a port in use.

Signal:      a usage error, or an exception before the server was ready that SGLang raises for what it was told.
Not this:    imports, libraries, permissions, disk (environment-error); exceptions while serving (python-exception).
Followed by: exit status 1 or 2 from main; from the scheduler SIGQUIT to main and SGLang's SIGKILL of itself.
Needs:       the server's log up to its end, not rate-limited.
To do:       change what the message names in the spec, run `inquest units check`, start again. A port in use: see who
             holds it (`ss -ltnp`). A model that could not be fetched: download it beforehand; a gated one needs its
             licence accepted and HF_TOKEN. Too little left for the KV cache: raise mem_fraction_static, or use a
             smaller draft model or a shorter context_length.
"""

import re
from dataclasses import replace

from forensics import frames
from forensics.causality import Ending
from forensics.events import Milestone, ServerArgs, ServerError, Traceback, UnitStarted, UnitStarting
from forensics.failure import decisive_line, finding, headline, innermost, search, sentence
from forensics.model import Finding, NotThis, Strength
from forensics.phase import became_ready

PATTERN = re.compile(
    r"max_running_request is zero|max_queued_requests is zero|Not enough memory\. Please try to increase"
    r"|leaves? no (?:GPU memory|room) for the (?:full )?KV|Not enough GPU memory for hybrid|state cache is too small"
    r"|memory capacity is unbalanced|Unknown speculative algorithm|speculative[_ -](?:eagle_topk|num|draft|algorithm)"
    r"|[Ss]peculative decoding (?:does not|only|requires)|does not support speculative decoding"
    r"|[Ss]peculative decoding is (?:currently )?not supported"
    r"|only supports topk = 1|must be divisible by|not supported unless|is not compatible with"
    r"|No model weights found in|only supports sm\d+ and above|is only (?:available|supported) (?:for|by|on) "
    r"|requires the \w+ backend|not tested on non-CUDA|Unsupported weight with name|Unknown gguf model_type"
    r"|Repo id must be in the form|is not a local folder|does not appear to have a file named|Unrecognized model"
    r"|Unrecognized configuration class|Unsupported architectures?|not supported for now\. Supported architectures"
    r"|SafetensorError|safetensors_rust|HeaderTooLarge|Attempted to load weight|size mismatch for"
    r"|shapes cannot be multiplied"
    r"|context_length|hot_token_id|draft.{0,40}(?:mismatch|vocab)|out of resource: shared memory|OutOfResources"
    r"|No available memory for the cache blocks|larger than the (?:available|maximum) .{0,40}KV cache"
    r"|No such file or directory: .*(?:config|tokenizer|safetensors)|[Cc]annot find (?:any )?model"
)
"""What SGLang, transformers and safetensors say of what they were told to run."""

_REFUSING_TYPES = ("ValueError", "AssertionError", "KeyError", "NotImplementedError", "FileNotFoundError",
                   "AttributeError", "OSError", "SafetensorError", "OutOfResources")  # fmt: skip
"""Types that say, before the server was ever ready, that something given to it does not fit."""

_ARGUMENTS = re.compile(r"/srt/(?:server_args\.py|arg_groups/|configs/)")
"""Where SGLang checks what it was told: whatever is raised there is a refusal, whatever its type."""

_SHAPES = re.compile(r"shapes cannot be multiplied|Sizes of tensors must match|size mismatch|must match the size")

HUB = re.compile(
    r"gated repo|GatedRepoError|RepositoryNotFoundError|RevisionNotFoundError|LocalEntryNotFoundError"
    r"|OfflineModeIsEnabled|couldn't connect to '|is not a valid model identifier"
    r"|40[134] Client Error(?:\. \(Request ID|[^\n]{0,80}huggingface)|outgoing traffic has been disabled"
    r"|[Cc]annot find an appropriate cached snapshot"
)
"""What huggingface_hub and transformers say when a model is not here and cannot be fetched."""


_WORDS = {
    True: "SGLang refused the configuration at start",
    False: "An exception ended the start, most likely over what SGLang was told to run",
}


def match(ending: Ending) -> Finding | NotThis | None:
    failure = ending.failure
    if failure is None:
        return None
    if isinstance(failure, ServerError) and failure.name == "usage-error":
        return finding(
            ending,
            failure,
            summary=sentence(f"The command line was refused: {dict(failure.values).get('what', '')}"),
            subclass="usage",
        )
    if isinstance(failure, ServerError) and failure.name == "address-in-use":
        return finding(
            ending,
            failure,
            summary="The server's port was taken by another process; SGLang noticed only after loading the model.",
            subclass="address-in-use",
            key=("address-in-use",),
        )
    if not isinstance(failure, Traceback):
        return None
    if became_ready(ending, before=failure.usec):
        return NotThis(why="the server had accepted its configuration and was ready before it failed")
    kind = failure.exception.rsplit(".", 1)[-1]
    if not _seen(ending) and frames.in_serving_loop(failure):
        return NotThis(why="whether it was raised at start is not in the log, and it came up through the serving loop")
    if hub := search(HUB, failure):
        return finding(
            ending,
            failure,
            summary=sentence(
                f"A model that is not on this machine could not be fetched: {decisive_line(failure, hub)}"
            ),
            subclass="model-not-fetched",
        )
    known = search(PATTERN, failure)
    if known is None and not _seen(ending) and not frames.in_start(failure):
        return NotThis(why="whether it was raised at start is not in the log")
    shapes = kind in ("RuntimeError", "Exception") and search(_SHAPES, failure) is not None
    checked = bool(failure.frames) and _ARGUMENTS.search(failure.frames[-1]) is not None
    if known is None and kind not in _REFUSING_TYPES and not shapes and not checked:
        return NotThis(why="no refusal of the configuration in the failure that began it")
    place = f" in {innermost(failure)}" if not failure.text and innermost(failure) else ""
    found = finding(
        ending,
        failure,
        summary=sentence(f"{_WORDS[known is not None]}: {decisive_line(failure, known) or headline(failure)}{place}"),
        subclass=re.sub(r"[^a-z0-9]+", "-", (known[0] if known else kind).lower()).strip("-")[:50],
    )
    # Of an exception that nobody here knows, its type and that it came before the server was ready are all there is.
    return found if known is not None else replace(found, strength=Strength.LIKELY)


def _seen(ending: Ending) -> bool:
    """Whether the start is known to have been under way: systemd's or SGLang's own record of it is there. An excerpt
    of a log may have neither."""
    begun = (UnitStarting, UnitStarted, ServerArgs, Milestone)
    return any(isinstance(event, begun) for event in ending.timeline.events)
