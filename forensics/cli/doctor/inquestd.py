"""The daemon itself, its settings, its alerts, and the tracer of signals."""

from collections.abc import Iterator

from forensics.cli.doctor.facts import Facts
from forensics.cli.doctor.row import Row, failed, ok, warning
from forensics.report import one_line


def settings(facts: Facts) -> Iterator[Row]:
    if facts.settings is None:
        for line in facts.settings_problem.splitlines():
            yield failed("settings", line, "Correct it, then `systemctl restart inquestd`.")
    else:
        yield ok("settings", f"watches {', '.join(facts.settings.units)}")


def daemon(facts: Facts) -> Row:
    state = facts.daemon.get("ActiveState", "")
    if facts.daemon.get("LoadState", "") != "loaded":
        return failed("daemon", "there is no inquestd.service on this machine", "Install it: `sudo ./deploy/up`.")
    if state != "active":
        remedy = "`systemctl start inquestd`; why it ended stands in `journalctl -u inquestd`."
        return failed("daemon", f"inquestd.service is {state}: deaths are judged when it runs again", remedy)
    if facts.health is None:
        return failed("daemon", facts.health_problem, "Look at `journalctl -u inquestd`.")
    if facts.health["version"] != facts.version:
        found = f"inquestd runs as {facts.health['version']}, and {facts.version} is installed"
        return warning("daemon", found, "`systemctl restart inquestd`; nothing is missed meanwhile.")
    runs = facts.health["open_runs"]
    return ok("daemon", f"inquestd {facts.version} answers; {runs} {'run lives' if runs == 1 else 'runs live'} now")


def restarts(facts: Facts) -> Row | None:
    count = facts.daemon.get("NRestarts", "0")
    if count in ("0", ""):
        return None
    remedy = "See why in `journalctl -u inquestd`, and report it with that log."
    return warning("daemon-restarts", f"inquestd was restarted {count} times since the boot", remedy)


def alerts(facts: Facts) -> Iterator[Row]:
    """One row a channel; the journal is always one. Messages that wait for their time are no trouble."""
    for channel in facts.channels:
        name, waiting = channel["name"], channel["waiting"]
        if channel["type"] == "gone":
            continue
        if waiting and channel["last_error"]:
            remedy = f"`inquest alerts status` shows them, `sudo inquest alerts test {name}` tries it."
            yield warning("alerts", f"{name}: {waiting} not delivered yet: {one_line(channel['last_error'])}", remedy)
        else:
            yield ok("alerts", f"{name}: {channel['delivered']} delivered")
    if facts.settings is not None and not facts.settings.alerts.names:
        remedy = "Name somebody to be told in [alerts] of /etc/inquest/inquestd.toml, then restart inquestd."
        yield warning("alerts", "only the journal is told of a crash", remedy)


def sigtrace(facts: Facts) -> Row:
    if facts.sigtrace.get("ActiveState") == "active":
        return ok("sigtrace", "the senders of signals are recorded")
    if facts.container:
        return ok("sigtrace", "it cannot run in a container: who sent a signal stays unknown")
    remedy = "`systemctl enable --now inquest-sigtrace`; it costs next to nothing."
    return warning("sigtrace", "it does not run: who sent a signal stays unknown", remedy)
