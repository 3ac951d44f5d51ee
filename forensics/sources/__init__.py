"""The evidence, one file a source. Recorded sources read journal entries; sampled ones look at the living server.

`RECORDED` are the parsers whose facts come from senders that cannot be forged, in the order in which they are asked.
Each is pure: `parse(entry) -> Event | None`. The server's own lines, which can quote anything, are `server`'s.
"""

from collections.abc import Callable

from forensics.entry import Entry
from forensics.events import Event
from forensics.sources import bench, coredump, heartbeat, kernel, oomkillers, remains, sigtrace, systemd

Parse = Callable[[Entry], Event | None]

RECORDED: tuple[Parse, ...] = (
    kernel.parse,
    systemd.parse,
    coredump.parse,
    oomkillers.parse,
    remains.parse,
    heartbeat.parse,
    sigtrace.parse,
    bench.parse,
)
