"""The signal tracer where it cannot work: in a container, which has no tracefs. With a kernel: vm/test_sigtrace.py."""

import pytest

from tests.e2e.inquest import Inquest

pytestmark = pytest.mark.e2e


def test_in_a_container_it_is_skipped_and_harms_nothing(inquest: Inquest) -> None:
    inquest.machine.run("systemctl", "start", "inquest-sigtrace.service")
    show = ("systemctl", "show", "inquest-sigtrace.service", "--property=ActiveState,ConditionResult,NRestarts")
    properties = set(inquest.machine.run(*show).stdout.split())
    assert properties == {"ActiveState=inactive", "ConditionResult=no", "NRestarts=0"}
    log = inquest.machine.run("journalctl", "--output=cat", "UNIT=inquest-sigtrace.service").stdout
    assert "was skipped because of an unmet condition check" in log


def test_the_program_itself_says_so_in_a_line(inquest: Inquest) -> None:
    done = inquest.machine.run("/opt/inquest/venv/bin/python", "-m", "forensics.sigtrace", "sglang-*.service")
    (line,) = done.stderr.splitlines()
    assert line.startswith("signals cannot be traced, and verdicts will not name their senders: this is a container")
