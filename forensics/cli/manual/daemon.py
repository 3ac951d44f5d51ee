"""inquestd.service(8)."""

from forensics.cli.manual.roff import Page

SUMMARY = "the daemon of Inquest: why an SGLang server died"

SOURCES = {
    "systemd": "PID 1's own records of the watched units. Without them no death is noticed.",
    "server": "What the server itself logged. It can quote anything, so it never counts as another source.",
    "kernel": "OOM kills, faults, Xid errors of GPUs. Containers cannot read it.",
    "coredump": "systemd-coredump's records.",
    "oomkillers": "What systemd-oomd, earlyoom and nohang say.",
    "unit": "The living unit's properties, over D-Bus.",
    "cgroup": "The unit's memory and its limits, while it lives.",
    "process": "Its processes, while it lives.",
    "host": "The host's memory, and the kernel's counter of OOM kills.",
    "gpu": "GPU memory and processes, by NVML.",
}
"""What the daemon reads; the names are those of GET /healthz."""


def write(page: Page) -> None:
    """Everything behind the name."""
    page.head("Synopsis")
    page.text("`inquestd.service`")
    page.text("`inquest daemon` [`--settings` FILE]")
    page.head("Description")
    page.text(
        "Follows the journal from a saved place, samples the living servers, and gives each end of a watched unit one"
        " verdict with its evidence. What died while it did not run is found when it starts. It restarts no server:"
        " systemd is the only supervisor."
    )
    page.text(
        "A verdict is confirmed where a record that cannot be forged names the unit's own process, cgroup or GPU and"
        " explains the exit; likely where it fits and a named alternative is open. Where nothing decides, the cause is"
        " unknown, with what was missing."
    )
    page.head("Sources")
    page.text("One that cannot be read is a gap that the verdict names; the others go on. `inquest doctor` says why.")
    for name, words in SOURCES.items():
        page.item(name, words)
    page.head("Journal")
    page.text(
        "Each verdict is a record of the daemon's: `journalctl -x -t inquestd` shows them with an explanation,"
        " `journalctl INQUEST_CAUSE=kernel-oom` those of a cause."
    )
    page.item("INQUEST_UNIT, INQUEST_INVOCATION_ID", "The unit, and the run of it that ended.")
    page.item("INQUEST_CRASH_ID", "The crash's id, for `inquest show`.")
    page.item("INQUEST_CAUSE, INQUEST_FAMILY, INQUEST_STRENGTH", "The verdict; no strength where nothing decides.")
    page.item("INQUEST_FINGERPRINT", "The same for deaths that are alike.")
    page.head("Exit status")
    page.text("0 after SIGTERM or SIGINT; 1 where it cannot run, as said; 2 where the settings are wrong.")
    page.head("Files")
    page.item("/etc/inquest/inquestd.toml", "Its settings; see `inquestd.toml`(5).")
    page.item("/var/lib/inquestd/inquest.sqlite", "The store: runs, verdicts, and alerts that are not yet delivered.")
    page.item("/run/inquestd/api.sock", "The API, beside TCP on 127.0.0.1 port 8642.")
    page.head("Security")
    page.text(
        "It runs as the user inquest, in a hardened unit without a capability. `inquest-sigtrace.service` is the one"
        " privileged part, and optional: it records who sent a signal."
    )
    page.head("See also")
    page.text("`inquest`(1), `inquestd.toml`(5), `inquest-server.toml`(5), `journalctl`(1)")
