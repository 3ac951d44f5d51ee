"""Entries as journald would store them, by sender."""

from forensics.entry import Entry

BOOT = "b0" * 16
UNIT = "sglang-demo.service"
INVOCATION = "1c" * 16


def entry(message: str, usec: int = 7_000_000, **fields: str) -> Entry:
    return Entry(
        cursor=f"s=5e;i={usec:x}",
        boot_id=BOOT,
        monotonic_usec=usec,
        realtime_usec=1_772_366_400_000_000 + usec,
        fields={"MESSAGE": message, "_BOOT_ID": BOOT, **fields},
    )


def kernel_line(message: str) -> Entry:
    return entry(message, _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel", SYSLOG_FACILITY="0", PRIORITY="3")


def from_pid1(message: str, **fields: str) -> Entry:
    own = {
        "_TRANSPORT": "journal",
        "_PID": "1",
        "_UID": "0",
        "_SYSTEMD_UNIT": "init.scope",
        "SYSLOG_IDENTIFIER": "systemd",
    }
    return entry(
        message, **{**own, "SYSLOG_IDENTIFIER": "systemd", "UNIT": UNIT, "INVOCATION_ID": INVOCATION, **fields}
    )


def from_server(message: str, **fields: str) -> Entry:
    own = {"_TRANSPORT": "stdout", "_PID": "4321", "_UID": "990", "_COMM": "python3", "_SYSTEMD_UNIT": UNIT}
    return entry(message, **{**own, "_SYSTEMD_INVOCATION_ID": INVOCATION, "SYSLOG_IDENTIFIER": "sglang-demo", **fields})
