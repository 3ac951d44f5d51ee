"""The doctor's checks over made-up facts: every branch; and once over this machine as it is."""

import json
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from forensics.cli.doctor import examined
from forensics.cli.doctor.facts import Disk, Facts, Unit, read
from forensics.cli.doctor.row import Row
from forensics.cli.doctor.units import SETTINGS
from forensics.settings import Settings
from tests.forensics.commandline import Inquest

SOURCES = ("systemd", "server", "kernel", "coredump", "oomkillers", "unit", "cgroup", "process", "host", "gpu")
UNIT: Unit = {
    "Id": "sglang-chat.service",
    "LoadState": "loaded",
    "ActiveState": "active",
    "FragmentPath": "/run/systemd/generator/sglang-chat.service",
    "SourcePath": "/etc/inquest/servers/chat.toml",
    "NeedDaemonReload": "no",
    "KillMode": "mixed",
    "OOMPolicy": "kill",
    "MemoryAccounting": "yes",
    "MemoryCurrent": "1073741824",
    "LogRateLimitIntervalUSec": "1us",
    "TimeoutStopUSec": "5min",
    "Restart": "on-failure",
    "RestartUSec": "5s",
    "SendSIGKILL": "yes",
    "StandardOutput": "journal",
    "ExecStart": "{ path=/opt/env/bin/python ; argv[]=/opt/env/bin/python -m sglang.launch_server ; pid=0 }",
    "ExecStopPost": "{ path=/opt/inquest/venv/bin/python ; argv[]=… -I -m service remains chat ; pid=0 }",
    "NRestarts": "0",
}


def health(**blind: str) -> dict[str, Any]:
    sources = [
        {"name": name, "state": "blind" if name in blind else "reading", "detail": blind.get(name, "")}
        for name in SOURCES
    ]
    return {"version": "1.2.3", "open_runs": 1, "sources": sources}


def channel(name: str, **changes: object) -> dict[str, object]:
    return {"name": name, "type": "webhook", "waiting": 0, "delivered": 0, "last_error": ""} | changes


WELL = Facts(
    systemd=252,
    container=False,
    version="1.2.3",
    settings=Settings.model_validate(
        {"alerts": {"webhooks": [{"name": "on-call", "url": "https://hooks.example.org/inquest"}]}}
    ),
    settings_problem="",
    health=health(),
    health_problem="",
    channels=(channel("journal", delivered=3), channel("on-call", waiting=1), channel("old", type="gone", waiting=4)),
    daemon={"LoadState": "loaded", "ActiveState": "active", "NRestarts": "0"},
    sigtrace={"ActiveState": "active"},
    journald={"MemoryCurrent": "12345"},
    journal="",
    kernel="",
    persistent=True,
    core_pattern="|/lib/systemd/systemd-coredump %P %u %g %s %t %c %h",
    coredump_storage="external",
    gpus="2 × NVIDIA H200, driver 570.1",
    gpu_problem="",
    clock_synchronized=True,
    disks=(Disk("/var/lib/inquestd", 50 << 30, 100 << 30),),
    generator=True,
    specs={"/etc/inquest/servers/chat.toml": ()},
    units=(UNIT,),
    sglang=(),
)


def test_on_a_machine_that_is_well_all_is_well() -> None:
    rows = examined(WELL)
    assert {row.state for row in rows} == {"ok"}
    assert not any(row.remedy for row in rows)
    assert [row.check for row in rows] == [
        *("systemd", "settings", "daemon", "journal", "journal-persistent", "kernel-log", "core-dumps"),
        *(
            "memory-controller",
            "gpus",
            "d-bus",
            "clock",
            "disk",
            "sigtrace",
            "alerts",
            "alerts",
            "generator",
            "spec",
            "unit",
        ),
    ]


WITHOUT_DAEMON = {"health": None, "health_problem": "inquestd does not answer"}


@pytest.mark.parametrize(
    ("changes", "check", "state", "finding", "remedy"),
    [
        ({"systemd": 0}, "systemd", "failed", "not PID 1", "deploy/up"),
        ({"systemd": 249}, "systemd", "warning", "systemd 249", "252 or newer"),
        (
            {"settings": None, "settings_problem": "inquestd.toml: api.prot: unknown key"},
            "settings",
            "failed",
            "api.prot: unknown key",
            "restart inquestd",
        ),
        ({"daemon": {"LoadState": "not-found"}}, "daemon", "failed", "no inquestd.service", "deploy/up"),
        ({"daemon": {}}, "daemon", "failed", "no inquestd.service", "deploy/up"),
        (
            {"daemon": {"LoadState": "loaded", "ActiveState": "failed"}},
            "daemon",
            "failed",
            "is failed",
            "systemctl start inquestd",
        ),
        (WITHOUT_DAEMON, "daemon", "failed", "does not answer", "journalctl -u inquestd"),
        ({"version": "1.2.4"}, "daemon", "warning", "runs as 1.2.3, and 1.2.4 is installed", "restart inquestd"),
        (
            {"daemon": {"LoadState": "loaded", "ActiveState": "active", "NRestarts": "4"}},
            "daemon-restarts",
            "warning",
            "restarted 4 times",
            "journalctl -u inquestd",
        ),
        ({"health": health(systemd="no right to read it")}, "journal", "failed", "no right", "systemd-journal"),
        ({"health": health(server="no right to read it")}, "journal", "failed", "no right", "systemd-journal"),
        (WITHOUT_DAEMON | {"journal": "no journal files"}, "journal", "failed", "no journal files", "systemd-journal"),
        ({"persistent": False}, "journal-persistent", "warning", "lost at a reboot", "Storage=persistent"),
        ({"health": health(kernel="ReadKMsg=no")}, "kernel-log", "warning", "ReadKMsg=no", "ReadKMsg=yes"),
        (WITHOUT_DAEMON | {"kernel": "no record"}, "kernel-log", "warning", "no record", "ReadKMsg=yes"),
        (
            {"health": health(kernel="a container"), "container": True},
            "kernel-log",
            "warning",
            "a container",
            "on the host itself",
        ),
        ({"core_pattern": "core"}, "core-dumps", "warning", "core_pattern: core", "Install systemd-coredump"),
        ({"core_pattern": ""}, "core-dumps", "warning", "core_pattern: unreadable", "Install systemd-coredump"),
        ({"core_pattern": "core", "container": True}, "core-dumps", "warning", "core_pattern", "The host decides"),
        ({"coredump_storage": "none"}, "core-dumps", "warning", "no core to read", "Storage=external"),
        ({"journald": {"MemoryCurrent": "[not set]"}}, "memory-controller", "warning", "no memory", "cgroup_disable"),
        ({"gpus": "", "gpu_problem": "did not answer within 5 s"}, "gpus", "failed", "did not answer", "nvidia-smi"),
        ({"health": health(unit="no bus")}, "d-bus", "warning", "no bus", "dbus.socket"),
        ({"journald": {}}, "d-bus", "warning", "does not answer", "dbus.socket"),
        ({"clock_synchronized": None}, "clock", "warning", "does not say", "timedatectl"),
        ({"clock_synchronized": False}, "clock", "warning", "not synchronized", "timesyncd"),
        ({"disks": (Disk("/v", 1 << 20, 1 << 40),)}, "disk", "failed", "/v: 1.0 MiB of 1.0 TiB free", "Make room"),
        ({"disks": (Disk("/v", 900 << 20, 1 << 40),)}, "disk", "warning", "900.0 MiB", "Make room"),
        ({"sigtrace": {"ActiveState": "inactive"}}, "sigtrace", "warning", "stays unknown", "enable --now"),
        (
            {"channels": (channel("on-call", waiting=2, last_error="status\n503"),)},
            "alerts",
            "warning",
            "on-call: 2 not delivered yet: status 503",
            "inquest alerts test on-call",
        ),
        ({"settings": Settings()}, "alerts", "warning", "only the journal", "[alerts]"),
        ({"generator": False}, "generator", "failed", "do not become units", "inquest units write"),
        ({"specs": {"/s.toml": ("/s.toml: prot: unknown key",)}}, "spec", "failed", "unknown key", "Correct /s.toml"),
        ({"units": ({**UNIT, "NeedDaemonReload": "yes"},)}, "unit", "warning", "has changed since", "daemon-reload"),
        (
            {"sglang": ({**UNIT, "Id": "my-llm.service"},)},
            "unit",
            "warning",
            "my-llm.service runs SGLang and is not watched",
            '"sglang-*.service", "my-llm.service"',
        ),
    ],
)
def test_what_is_not_well_is_said_with_its_remedy(
    changes: dict[str, Any], check: str, state: str, finding: str, remedy: str
) -> None:
    found = [row for row in examined(replace(WELL, **changes)) if row.check == check and row.state != "ok"]
    assert any(row.state == state and finding in row.finding and remedy in row.remedy for row in found), found
    assert all(row.remedy for row in found)


@pytest.mark.parametrize(
    ("changes", "check", "finding"),
    [
        ({"gpus": ""}, "gpus", "no NVIDIA driver"),
        ({"container": True}, "systemd", "in a container"),
        ({"sigtrace": {}, "container": True}, "sigtrace", "cannot run in a container"),
        # Much of a small disk is free.
        ({"disks": (Disk("/v", 500 << 20, 1 << 30),)}, "disk", "500.0 MiB of 1.0 GiB"),
        (WITHOUT_DAEMON, "journal", "can be read"),
    ],
)
def test_what_cannot_be_otherwise_is_no_warning(changes: dict[str, Any], check: str, finding: str) -> None:
    (row,) = [row for row in examined(replace(WELL, **changes)) if row.check == check]
    assert row.state == "ok"
    assert finding in row.finding


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ExecStart", "{ path=/bin/bash ; argv[]=/bin/bash -c python -m sglang.launch_server ; pid=0 }"),
        ("ExecStart", "{ path=/usr/bin/docker ; argv[]=/usr/bin/docker run lmsysorg/sglang ; pid=0 }"),
        ("StandardOutput", "file:/var/log/sglang.log"),
        ("KillMode", "control-group"),
        ("SendSIGKILL", "no"),
        ("LogRateLimitIntervalUSec", "0"),
        ("LogRateLimitIntervalUSec", "30s"),
        ("MemoryAccounting", "no"),
        ("OOMPolicy", "continue"),
        ("TimeoutStopUSec", "infinity"),
        ("TimeoutStopUSec", "5s"),
        ("RestartUSec", "100ms"),
        ("ExecStopPost", ""),
    ],
)
def test_a_unit_whose_setting_hides_something(name: str, value: str) -> None:
    unit = {**UNIT, "Id": "sglang-by-hand.service", name: value}
    (row,) = [row for row in examined(replace(WELL, units=(unit,))) if row.check == "unit"]
    (setting,) = [setting for setting in SETTINGS if setting.name == name]
    assert row.state == "warning"
    assert row.finding.startswith(f"sglang-by-hand.service: {name}=")
    assert row.finding.endswith(setting.why)
    assert setting.wanted in row.remedy


def test_every_setting_has_a_unit_that_it_does_not_fit() -> None:
    unfit = {**dict.fromkeys(UNIT, ""), "ExecStart": "{ path=/bin/sh ; argv[]=sh }", "OOMPolicy": "continue"}
    unfit |= {"StandardOutput": "null"}
    assert [setting.name for setting in SETTINGS if setting.fits(unfit)] == []


def test_one_that_never_restarts_needs_no_pause() -> None:
    rows = examined(replace(WELL, units=({**UNIT, "Restart": "no", "RestartUSec": "100ms"},)))
    assert {row.state for row in rows} == {"ok"}


# --- the command ---------------------------------------------------------------------------------------------


def rows_of(state: str) -> Callable[[Facts], list[Row]]:
    return lambda _: [Row("a-check", state, "what was found", "what to do")]  # type: ignore[arg-type]


@pytest.mark.parametrize(("state", "status"), [("ok", 0), ("warning", 0), ("failed", 1)])
def test_the_exit_status_is_1_where_something_failed(
    inquest: Inquest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: str,
    status: int,
) -> None:
    monkeypatch.setattr("forensics.cli.doctor.read", lambda: WELL)
    monkeypatch.setattr("forensics.cli.doctor.examined", rows_of(state))
    assert inquest("doctor") == status
    assert capsys.readouterr().out.splitlines() == [
        "check    state" + " " * (len(state) - 3 if len(state) > 5 else 2) + "finding         remedy",
        f"a-check  {state:<{max(len(state), 5)}}  what was found  what to do",
    ]
    assert inquest("doctor", "--format", "json") == status
    assert json.loads(capsys.readouterr().out) == [
        {"check": "a-check", "state": state, "finding": "what was found", "remedy": "what to do"}
    ]


def test_this_machine_is_looked_at_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is: with systemd or without, with a daemon or without."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("INQUEST_API", f"http://127.0.0.1:{port}")
    facts = read()
    assert facts.health is None
    assert f"127.0.0.1:{port}" in facts.health_problem
    assert bool(facts.systemd) == os.path.isdir("/run/systemd/system")
    rows = examined(facts)
    assert any(row.check == "daemon" and row.state == "failed" for row in rows)
    assert all(row.remedy for row in rows if row.state != "ok")
