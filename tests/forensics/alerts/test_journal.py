import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forensics.alerts import addressees
from forensics.alerts.journal import MESSAGE_IDS, JournalSink, fields
from forensics.runs.notice import SPECULATION_REMARKED
from forensics.settings import Settings
from forensics.store.telling import FOLDED, KINDS
from service.heartbeat import MESSAGE_ID as HEARTBEAT
from tests.forensics.alerts.deliveries import LINK, delivery, living
from tests.forensics.factories import clean, crash, invocation

CATALOG = Path(__file__).parents[3] / "deploy/rootfs/usr/local/lib/systemd/catalog/inquest.catalog"


def test_the_record_has_our_message_id_and_the_verdict_in_fields() -> None:
    sent: list[tuple[str, dict[str, str]]] = []
    JournalSink(host="gpu7", link=LINK, send=lambda text, **given: sent.append((text, given))).send(delivery())
    [(text, given)] = sent
    assert text.startswith("demo on gpu7 died of python-exception (confirmed): ")
    assert given == {
        "MESSAGE_ID": "dda9a1b77c244a0fb78984335814e6ea",
        "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "inquestd",
        "INQUEST_EVENT": "crash",
        "INQUEST_UNIT": "sglang-demo.service",
        "INQUEST_CAUSE": "python-exception",
        "INQUEST_FAMILY": "traceback",
        "INQUEST_STRENGTH": "confirmed",
        "INQUEST_CRASH_ID": invocation(1)[:12],
        "INQUEST_FINGERPRINT": "v1-0123456789abcdef",
        "INQUEST_INVOCATION_ID": invocation(1),
        "INQUEST_REVISION": "1",
    }


@pytest.mark.parametrize(
    ("told", "priority"),
    [
        (delivery(), "3"),
        (delivery(of=crash(1, cause="stop-timeout")), "4"),
        (delivery(of=crash(1, cause="unknown", strength=None)), "3"),
        (delivery("amended", of=clean(1)), "5"),
        (delivery("start-limit"), "1"),
        (delivery("recovered"), "5"),
        (living("hang"), "4"),
        (living("answering"), "5"),
    ],
    ids=lambda given: getattr(given, "kind", ""),
)
def test_how_loud_a_record_is(told: Any, priority: str) -> None:
    assert fields(told)["PRIORITY"] == priority


def test_a_living_run_is_named() -> None:
    given = fields(living("hang"))
    assert given["INQUEST_INVOCATION_ID"] == "0" * 31 + "7"
    assert "INQUEST_CAUSE" not in given


def test_each_kind_that_the_journal_is_told_has_an_id_of_its_own() -> None:
    [journal] = addressees(Settings())
    assert not journal.manner.gather_seconds, "a record of each death"
    assert set(MESSAGE_IDS) == {*KINDS, "test"} - {FOLDED}
    assert len(set(MESSAGE_IDS.values())) == len(MESSAGE_IDS)


# --- the catalog ---------------------------------------------------------------------------------------------


def test_the_catalog_explains_each_of_our_records() -> None:
    explained = re.findall(r"^-- ([0-9a-f]{32})$", CATALOG.read_text(), re.MULTILINE)
    assert sorted(explained) == sorted([*MESSAGE_IDS.values(), SPECULATION_REMARKED, HEARTBEAT])


def test_the_catalog_fills_in_only_fields_that_the_records_have() -> None:
    death = fields(delivery())
    for message_id, text in re.findall(r"^-- ([0-9a-f]{32})\n(.*?)(?=^-- |\Z)", CATALOG.read_text(), re.M | re.S):
        kind = next((kind for kind, known in MESSAGE_IDS.items() if known == message_id), None)
        given = fields(living(kind)) if kind in ("hang", "answering") else death
        if kind is not None:
            assert set(re.findall(r"@([A-Z_]+)@", text)) <= set(given), kind


@pytest.mark.skipif(shutil.which("journalctl") is None, reason="needs journalctl")
def test_journalctl_takes_the_catalog(tmp_path: Path) -> None:
    """Compiled by journalctl itself, in a tree of its own, from where deploy puts it."""
    place = tmp_path / "usr/local/lib/systemd/catalog"
    place.mkdir(parents=True)
    (tmp_path / "var/lib/systemd/catalog").mkdir(parents=True)
    shutil.copy(CATALOG, place)
    subprocess.run(["journalctl", "--update-catalog", f"--root={tmp_path}"], check=True, timeout=60)
    database = (tmp_path / "var/lib/systemd/catalog/database").read_bytes()
    for message_id in MESSAGE_IDS.values():
        assert bytes.fromhex(message_id) in database


# --- for real ------------------------------------------------------------------------------------------------

SEND_ONE = """
from forensics.alerts.journal import JournalSink
from tests.forensics.alerts.deliveries import LINK, delivery
JournalSink(host="gpu7", link=LINK).send(delivery())
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root and unshare for a /run of its own"
)
def test_libsystemd_writes_the_record_to_journalds_socket(tmp_path: Path) -> None:
    """The real systemd.journal.send, in a mount namespace where journald's socket is ours."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(path))
        journald.settimeout(20)
        script = (
            "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && touch /run/systemd/journal/socket && "
            f'mount --bind {path} /run/systemd/journal/socket && exec {sys.executable} -c "$0"'
        )
        subprocess.run(["unshare", "--mount", "sh", "-c", script, SEND_ONE], check=True, timeout=60)
        datagram = journald.recv(1 << 16)
    simple = dict(line.split(b"=", 1) for line in datagram.split(b"\n") if b"=" in line)
    assert simple[b"MESSAGE_ID"].decode() == MESSAGE_IDS["crash"]
    assert simple[b"PRIORITY"] == b"3"
    assert simple[b"INQUEST_CAUSE"] == b"python-exception"
    # A message of several lines goes in the binary form: the name, a length, the text.
    assert b"MESSAGE\n" in datagram
    assert b"demo on gpu7 died of python-exception (confirmed): The scheduler died of RuntimeError" in datagram
