"""Where the server's processes stand: their stacks by py-spy, which is no part of Inquest but of SGLang's environment.

A stack holds names of files and functions, no values: nothing of a user's prompt.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

from service.identity import comm, command_line

__all__ = ["dump", "may_run_as_root"]

DEADLINE_SECONDS = 5.0
MOST_BYTES = 24_000


def dump(pids: Iterable[int]) -> str:
    """The stacks of these processes, one after the other; where there are none it says why."""
    program = shutil.which("py-spy")
    if program is None:
        return "no stacks: py-spy is not installed beside SGLang"
    return "\n\n".join(f"{pid} {command_line(pid) or comm(pid)}:\n{_stack(program, pid)}" for pid in pids)


def _stack(program: str, pid: int) -> str:
    try:
        # A program that the server's user could have changed is run with no more rights than that user has.
        owner = None if os.geteuid() or may_run_as_root(Path(program)) else Path(f"/proc/{pid}").stat().st_uid
        # Not stopped for the look: whoever hangs stands still anyway, and a look must not harm.
        done = subprocess.run(
            [program, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEADLINE_SECONDS,
            user=owner,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"no stack: py-spy gave none within {DEADLINE_SECONDS:.0f} s"
    except (OSError, subprocess.SubprocessError) as error:
        return f"no stack: {error}"
    if done.returncode != 0:
        return f"no stack: {done.stderr.strip()}"
    # py-spy begins with the whole command line, in which an option can be a key.
    text = "\n".join(line for line in done.stdout.strip().splitlines() if not line.startswith("Process "))
    return text if len(text) <= MOST_BYTES else f"{text[:MOST_BYTES]}\n…"


def may_run_as_root(program: Path) -> bool:
    """Whether only root can change the program, or put another in its place."""
    try:
        real = program.resolve(strict=True)
        for path in (real, *real.parents):
            found = path.stat()
            shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
            if found.st_uid != 0 or shared:
                return False
    except OSError:
        return False
    return True
