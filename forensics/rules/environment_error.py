"""environment-error: the machine or the Python environment does not fit: imports, versions, libraries, rights, disk.

Signal:      ImportError and kin, `undefined symbol`, a driver or library mismatch, no space, no permission, no threads.
Not this:    `Ignore import error when loading …`, which every start prints; model files that are missing.
Followed by: exit status 1, or from the scheduler SIGQUIT to main and SGLang's SIGKILL of itself.
Needs:       the server's log with the traceback or the loader's line.
To do:       mend the environment that the message names; the spec is not to blame. A compiler that was killed:
             MAX_JOBS=2 in [env]. A GPU that Triton's ptxas does not know: TRITON_PTXAS_PATH in [env], or a newer
             Triton.
"""

import re

from forensics.causality import Ending, Failure
from forensics.events import NativeAbort, ServerError
from forensics.failure import WHOLE, decisive_line, finding, innermost, said, search, search_machine, sentence
from forensics.model import Finding, NotThis
from forensics.phase import became_ready

PATTERN = re.compile(
    r"^(?:[\w.]+\.)?(?:ImportError|ModuleNotFoundError|PermissionError|MemoryError|PackageNotFoundError)\b"
    r"|undefined symbol|cannot open shared object file|DLL load failed|GLIBC(?:XX)?_[\d.]+' not found"
    r"|Driver/library version mismatch|Error 80[23]: |system not yet initialized|unsupported display driver"
    r"|Found no NVIDIA driver|No CUDA GPUs are available|No accelerator \(CUDA|no CUDA-capable device"
    r"|No supported accelerator|(?:nvidia|rocm|hl|npu)-smi (?:not found|error)|mthreads-gmi (?:not found|error)"
    r"|No GPU memory values found|torch_npu is required|torch\.(?:xpu|mps) is not available|not compiled with CUDA"
    r"|Mooncake (?:Transfer Engine initialization|memory registration) failed|No IB devices found in"
    r"|Unexpected error from cudaGetDeviceCount|No space left on device"
    r"|\[Errno (?:1|11|12|13|23|24|28|30|116|122)\]|Read-only file system|Disk quota exceeded"
    r"|Resource temporarily unavailable|can't start new thread|pthread_create failed|can't allocate memory"
    r"|less than the minimum required version|version .{0,40} is (?:not supported|too old|required)|Too many open files"
    r"|failed to extend /dev/shm|Bus error|CUDA unknown error|CUDA initialization: "
    r"|Failed to find C compiler|CUDA_HOME environment variable is not set|Ninja is required to load C\+\+ extensions"
    r"|Could not find nvcc|No such file or directory: '(?:\S*/)?(?:nvcc|ninja|gcc|cc|g\+\+|c\+\+|clang|ptxas)'",
    re.MULTILINE,
)

BUILD = re.compile(
    r"Ninja build failed|Error building extension|Internal Triton PTX codegen error|PTXASError|ptxas fatal"
    r"|\bnvcc (?:fatal|error) *:"
)
"""A kernel is compiled on this machine as it is first needed, and that failed."""

COMPILER = re.compile(
    r"^(?:.*died due to signal 9.*|Killed|ptxas fatal.*|nvcc (?:fatal|error) *:.*|.*: fatal error: .*|.*\): error: .*"
    r"|.*: error: .*|.*undefined reference to .*|.*cannot find -l.*)$",
    re.MULTILINE,
)
"""The compiler's own word on why, among all that it printed."""


def match(ending: Ending) -> Finding | NotThis | None:
    failure = ending.failure
    if failure is None:
        return None
    caught = isinstance(failure, ServerError) and failure.name == "caught-signal"
    if isinstance(failure, NativeAbort) or caught or said(failure).startswith("NCCL WARN"):
        return None  # an abort, or NCCL's own report, is that rule's, whatever resource was wanting
    # Before it served, nobody had sent it a word that an exception could quote.
    served = became_ready(ending, before=failure.usec)
    found = search_machine(PATTERN, failure) if served else search(PATTERN, failure)
    if (built := search_machine(BUILD, failure)) is not None:
        return _not_built(ending, failure, built)
    if found is None:
        return NotThis(why="no sign of a broken environment in the failure that began it")
    return finding(
        ending,
        failure,
        summary=sentence(f"The environment does not fit: {decisive_line(failure, found)}"),
        subclass=re.sub(r"[^a-z0-9]+", "-", found[0].lower()).strip("-")[:50],
        key=(decisive_line(failure, found, WHOLE), innermost(failure)),
    )


def _not_built(ending: Ending, failure: Failure, built: re.Match[str]) -> Finding:
    said = COMPILER.search(built.string, built.start())
    line = decisive_line(failure, said or built)
    killed = said is not None and ("signal 9" in line or line == "Killed")
    words = "its compiler was killed, most often because the host's memory ran out" if killed else line
    return finding(
        ending,
        failure,
        summary=sentence(f"A kernel could not be compiled on this machine: {words}"),
        subclass="compiler-killed" if killed else "kernel-build",
        key=("kernel-build", decisive_line(failure, said or built, WHOLE)),
    )
