import csv
import io
import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from forensics.cli.runs import argument
from forensics.store import Store
from tests.forensics.commandline import Inquest
from tests.forensics.runs.lives import decode, start
from tests.forensics.runs.test_store import campaign

pytestmark = pytest.mark.usefixtures("api")


def test_runs_in_plain_columns(store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    campaign(store)
    assert inquest("runs", "demo") == 0
    head, newest, _, oldest = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["id", "server", "started"]
    assert "unexplained-kill" in newest or "external-signal" in newest
    assert "190" in newest
    assert "760" in newest
    assert "speculative_num_steps 3 → 5" in newest
    assert oldest.split()[-1] == "2.50"


def test_a_living_run_and_what_is_odd_about_it(
    store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, _ = campaign(store)
    machine.begin([*start(), *(decode(4, 900, 1.0, 0.0) for _ in range(20))])
    store.checkpoint("c", 1, machine.tracker.records())
    assert inquest("runs") == 0
    lines = capsys.readouterr().out.splitlines()
    assert " running " in lines[1]
    assert "speculation is useless" in lines[-1]


def test_the_tuning_table(store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    campaign(store)
    assert inquest("runs", "demo", "--by", "speculative.num_steps") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("speculative_num_steps  best tok/s, 1 running  best tok/s, 5-16 running")
    assert [row.split()[:5] for row in rows] == [
        ["1", "150", "600", "2.50", "48"],
        ["3", "220", "880", "2.50", "48"],
        ["5", "190", "760", "2.50", "48"],
    ]


def test_the_tuning_table_for_programs(store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    campaign(store)
    assert inquest("runs", "demo", "--by", "speculative_num_steps", "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["speculative_num_steps"] for row in rows] == ["1", "3", "5"]
    assert inquest("runs", "demo", "--by", "speculative_num_steps", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["rows"][1]["best"] == {"1": 220, "5-16": 880}
    assert inquest("runs", "--format", "csv") == 0
    newest = next(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (newest["best tok/s, 1 running"], newest["best tok/s, 5-16 running"]) == ("190", "760")
    assert float(newest["median tok/s, 1 running"]) == pytest.approx(190, rel=0.02)
    assert inquest("runs", "--format", "json", "--limit", "2") == 0
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_a_tuning_table_needs_a_server(inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    assert inquest("runs", "--by", "speculative_num_steps") == 2
    assert "of one server" in capsys.readouterr().err
    assert inquest("runs", "nobody", "--by", "speculative_num_steps") == 1
    assert "no run of a server 'nobody'" in capsys.readouterr().err


def test_no_runs(inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    assert inquest("runs") == 0
    assert capsys.readouterr().err == "No runs.\n"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("speculative.num_steps", "speculative_num_steps"),
        ("--speculative-num-steps", "speculative_num_steps"),
        ("speculative_num_steps", "speculative_num_steps"),
        ("memory.max_running_requests", "max_running_requests"),
        ("dtype", "dtype"),
    ],
)
def test_an_argument_may_be_called_as_people_know_it(key: str, name: str) -> None:
    assert argument(key) == name


# --- the picture ---------------------------------------------------------------------------------------------


def test_the_picture_has_a_line_a_concurrency_and_marks_the_crash(
    store: Store, inquest: Inquest, tmp_path: Path
) -> None:
    campaign(store)
    path = tmp_path / "tuning.svg"
    assert inquest("runs", "demo", "--plot", str(path)) == 0
    picture = ET.fromstring(path.read_text())
    names = [child.tag.rsplit("}", 1)[-1] for child in picture]
    assert names.count("polyline") == 3  # two concurrencies and the accept length
    assert names.count("path") == 2  # the crash and its place in the legend
    words = [child.text for child in picture if child.tag.endswith("text")]
    assert {"1", "3", "5", "demo: by speculative_num_steps", "1 running", "5-16 running", "crashed"} <= set(words)


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="rsvg-convert is not installed")
def test_a_png_is_one(store: Store, inquest: Inquest, tmp_path: Path) -> None:
    campaign(store)
    assert inquest("runs", "demo", "--plot", str(tmp_path / "tuning.png")) == 0
    assert (tmp_path / "tuning.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_picture_that_cannot_be_made_is_refused(
    store: Store,
    inquest: Inquest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    campaign(store)
    assert inquest("runs", "demo", "--plot", str(tmp_path / "tuning.gif")) == 2
    assert ".svg or .png" in capsys.readouterr().err
    assert inquest("runs", "demo", "--plot", str(tmp_path / "no" / "tuning.svg")) == 2
    assert "cannot be written" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert inquest("runs", "demo", "--plot", str(tmp_path / "tuning.png")) == 2
    assert "librsvg2-bin" in capsys.readouterr().err


# --- diff ----------------------------------------------------------------------------------------------------


def test_two_runs_side_by_side(store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    _, ids = campaign(store)
    assert inquest("diff", ids[0], ids[1][:12]) == 0
    by_id = capsys.readouterr().out
    rows = {line.split("  ")[0].strip(): line.split()[-2:] for line in by_id.splitlines()[1:]}
    assert rows["speculative_num_steps"] == ["1", "3"]
    assert rows["accept length"] == ["2.50", "2.50"]
    assert "tokens/s at 1 running" in rows
    assert "mem_fraction_static" not in rows
    assert inquest("diff", "demo~2", "demo~1") == 0
    assert capsys.readouterr().out == by_id


def test_a_diff_for_programs(store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    _, ids = campaign(store)
    assert inquest("diff", "demo", ids[0], "--format", "json") == 0
    content = json.loads(capsys.readouterr().out)
    assert content["runs"] == [ids[2], ids[0]]
    assert {"section": "configuration", "name": "speculative_num_steps", "first": "5", "second": "1"} in content["rows"]


@pytest.mark.parametrize("name", ["demo~9", "nobody", "demo~x"])
def test_a_run_that_is_not_there(store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str], name: str) -> None:
    campaign(store)
    assert inquest("diff", "demo", name) == 2
    assert name in capsys.readouterr().err


# --- servers -------------------------------------------------------------------------------------------------


def test_servers_with_their_state_and_what_is_odd(
    store: Store, inquest: Inquest, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, ids = campaign(store)
    assert inquest("servers") == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "server"
    assert row.startswith("demo")
    assert "ended 2026-03-01" in row
    assert ids[2][:12] in row
    machine.begin([*start(), *(decode(4, 900, 1.0, 0.0) for _ in range(20))])
    store.checkpoint("c", 1, machine.tracker.records())
    assert inquest("servers") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "running since 2026-03-01" in lines[1]
    assert lines[-1].startswith("demo: speculation is useless")


def test_no_servers(inquest: Inquest, capsys: pytest.CaptureFixture[str]) -> None:
    assert inquest("servers") == 0
    assert capsys.readouterr().err == "No servers.\n"
