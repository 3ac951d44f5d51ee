"""A process to be killed: saves crashes and checkpoints, as a daemon does that reads a journal.

`python -m tests.forensics.saving FILE`: the journal is the numbers from 1 on. It takes up at the checkpoint, and for
each number saves the crash, then the checkpoint behind it. Each number is printed once its save has returned. After
AT_MOST numbers it waits for its end, so that a test that comes late to kill it finds no more than that.
"""

import signal
import sys
from pathlib import Path

from forensics.store import Store
from tests.forensics.channels import everybody
from tests.forensics.factories import crash, open_run

SINKS = ("journal", "pager")
AT_MOST = 80


def main() -> None:
    store = Store(Path(sys.argv[1]), everybody(*SINKS))
    last = store.load_checkpoint()
    done = int(last.cursor) if last is not None else 0
    for number in range(done + 1, done + AT_MOST + 1):
        store.save(crash(number))
        print(number, flush=True)
        store.checkpoint(str(number), number, [open_run(number + 1)])
    signal.pause()


if __name__ == "__main__":
    main()
