"""environment-error: the machine or the Python environment does not fit: imports, versions, libraries, rights, disk.

Signal:      ImportError and kin, `undefined symbol`, a driver or library mismatch, no space, no permission, no threads.
Not this:    `Ignore import error when loading …`, which every start prints; model files that are missing.
Followed by: exit status 1, or from the scheduler SIGQUIT to main and SGLang's SIGKILL of itself.
Needs:       the server's log with the traceback or the loader's line.
To do:       mend the environment that the message names; the spec is not to blame.
"""

import re

from forensics.causality import Ending
from forensics.events import NativeAbort
from forensics.failure import decisive_line, finding, innermost, said, search, search_machine, sentence
from forensics.model import Finding, NotThis
from forensics.phase import became_ready

PATTERN = re.compile(
    r"^(?:[\w.]+\.)?(?:ImportError|ModuleNotFoundError|PermissionError|MemoryError|PackageNotFoundError)\b"
    r"|undefined symbol|cannot open shared object file|DLL load failed|GLIBC(?:XX)?_[\d.]+' not found"
    r"|Driver/library version mismatch|Error 80[23]: |system not yet initialized|unsupported display driver"
    r"|Found no NVIDIA driver|No CUDA GPUs are available|No accelerator \(CUDA|no CUDA-capable device"
    r"|not compiled with CUDA"
    r"|Unexpected error from cudaGetDeviceCount|No space left on device|\[Errno (?:12|13|24|28)\]|Read-only file system"
    r"|Resource temporarily unavailable|can't start new thread|pthread_create failed|can't allocate memory"
    r"|less than the minimum required version|version .{0,40} is (?:not supported|too old|required)|Too many open files"
    r"|failed to extend /dev/shm|Bus error",
    re.MULTILINE,
)


def match(ending: Ending) -> Finding | NotThis | None:
    failure = ending.failure
    if failure is None:
        return None
    if isinstance(failure, NativeAbort) or said(failure).startswith("NCCL WARN"):
        return None  # an abort, or NCCL's own report, is that rule's, whatever resource was wanting
    # Before it served, nobody had sent it a word that an exception could quote.
    served = became_ready(ending, before=failure.usec)
    found = search_machine(PATTERN, failure) if served else search(PATTERN, failure)
    if found is None:
        return NotThis(why="no sign of a broken environment in the failure that began it")
    return finding(
        ending,
        failure,
        summary=sentence(f"The environment does not fit: {decisive_line(failure, found)}"),
        subclass=re.sub(r"[^a-z0-9]+", "-", found[0].lower()).strip("-")[:50],
        key=(decisive_line(failure, found, 120), innermost(failure)),
    )
