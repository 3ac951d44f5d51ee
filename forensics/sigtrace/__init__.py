"""Who sent the signal? A small program of its own that asks the kernel, and writes the answers into the journal.

Optional, and the only part with privileges (`inquest-sigtrace.service`). It shares no memory, socket or file with the
daemon: its records are evidence like any other, read by `forensics/sources/sigtrace.py`. Standard library and
python-systemd only.
"""

UNIT = "inquest-sigtrace.service"
"""Records are believed from this unit only."""

SIGNAL_SENT = "21f6bba9af9f405e91f1adf0333ab7ca"
"""MESSAGE_ID: a deadly signal was sent to a process of a watched unit; the fields are listed in `records`."""

WATCHING = "2e39ca20031c41e19f28afad727ae5bb"
"""MESSAGE_ID: a run of a watched unit is seen; every signal to it is recorded from INQUEST_SINCE_USEC on."""

INTERRUPTED = "62e7e3d456c746f48183e054af84d3d2"
"""MESSAGE_ID: signals may have passed unseen (INQUEST_REASON): silence proves nothing for runs that were alive."""
