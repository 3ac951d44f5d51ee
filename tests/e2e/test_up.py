"""deploy/up on a machine where it has run before: with a spec of one's own, and with one that has a mistake.

The server is the stand-in of test_standin.py, since what is tested is how it gets there.
"""

import subprocess

import pytest

from deploy.environment import ROOT
from tests.e2e.inquest import Inquest
from tests.e2e.test_standin import SPEC

pytestmark = pytest.mark.e2e


def up(inquest: Inquest, name: str, spec: str) -> subprocess.CompletedProcess[str]:
    (inquest.machine.root / f"root/{name}.toml").write_text(spec)
    return inquest.machine.run(ROOT / "deploy" / "up", f"/root/{name}.toml", check=False)


@pytest.mark.usefixtures("standin")
def test_serves_a_spec_of_ones_own(inquest: Inquest) -> None:
    done = up(inquest, "mine", SPEC.format(port=30120))
    assert done.returncode == 0, done.stderr
    assert "sglang-mine.service serves on port 30120" in done.stdout
    # What was there from the first time is not made again.
    assert "SGLang for a machine without a GPU" not in done.stdout
    mine = inquest.server("mine")
    assert mine.show("ActiveState") == "active"
    mine.stop()


def test_says_what_is_wrong_with_a_spec_and_changes_nothing(inquest: Inquest) -> None:
    done = up(inquest, "wrong", SPEC.format(port=30121).replace("model_path", "modle_path"))
    assert done.returncode != 0
    assert "modle_path" in done.stderr
    assert "did you mean" in done.stderr
    assert not (inquest.machine.root / "etc/inquest/servers/wrong.toml").exists()
    assert inquest.answers()
