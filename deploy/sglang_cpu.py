"""Real SGLang on a machine without a GPU: its environment and tiny models for it.

The environment belongs to the server and is never imported by Inquest.  See sglang-cpu/ for what
is pinned, what is stood in for, and why.
"""

import shutil
import tempfile
from pathlib import Path

from deploy import stamp
from deploy.environment import create, pip, python_version
from deploy.progress import run, step

SGLANG = Path("/opt/inquest/sglang")
MODELS = Path("/var/lib/inquest/models")
_PARTS = Path(__file__).resolve().parent / "sglang-cpu"


def install() -> None:
    """Bring /opt/inquest/sglang and the models up to their pins; quick when they already are."""
    version = python_version()
    pins = stamp.digest(
        [
            _PARTS / "requirements.txt",
            _PARTS / "requirements-nodeps.txt",
            _PARTS / "patch_torchvision.py",
            _PARTS / "standin",
        ],
        version,
    )
    if not stamp.is_fresh(SGLANG, pins):
        with step("SGLang for a machine without a GPU (3 GB in /opt/inquest/sglang, some minutes)"):
            _install_environment(version)
            stamp.set_fresh(SGLANG, pins)
    recipe = stamp.digest([_PARTS / "make_models.py"], pins)
    if not stamp.is_fresh(MODELS, recipe):
        with step(f"tiny models (made here, in {MODELS})"):
            shutil.rmtree(MODELS, ignore_errors=True)
            run([SGLANG / "bin" / "python", _PARTS / "make_models.py", MODELS])
            stamp.set_fresh(MODELS, recipe)


def _install_environment(version: str) -> None:
    create(SGLANG, version)
    stamp.clear(SGLANG)
    pip(SGLANG, ["install", "--requirement", _PARTS / "requirements.txt"])
    pip(SGLANG, ["install", "--no-deps", "--requirement", _PARTS / "requirements-nodeps.txt"])
    run([SGLANG / "bin" / "python", _PARTS / "patch_torchvision.py"])
    with tempfile.TemporaryDirectory(prefix="inquest-build-") as scratch:
        standin = Path(scratch) / "standin"
        shutil.copytree(_PARTS / "standin", standin)
        pip(SGLANG, ["install", "--no-deps", "--force-reinstall", standin])
