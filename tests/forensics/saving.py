"""A process to be killed: saves crashes and checkpoints without end, as a daemon does that reads a journal.

`python -m tests.forensics.saving FILE`: the journal is the numbers from 1 on. It takes up at the checkpoint, and for
each number saves the crash, then the checkpoint behind it. Each number is printed once its save has returned.
"""

import sys
from pathlib import Path

from forensics.store import Store
from tests.forensics.factories import crash, open_run

SINKS = ("journal", "pager")


def main() -> None:
    store = Store(Path(sys.argv[1]))
    last = store.load_checkpoint()
    number = int(last.cursor) if last is not None else 0
    while True:
        number += 1
        store.save(crash(number), SINKS)
        print(number, flush=True)
        store.checkpoint(str(number), number, [open_run(number + 1)])


if __name__ == "__main__":
    main()
