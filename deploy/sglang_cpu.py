"""Real SGLang on a machine without a GPU: its environment and tiny models for it.

The environment belongs to the server and is never imported by Inquest.  See sglang-cpu/ for what
is pinned, what is stood in for, and why.
"""

import shutil
import tempfile
from pathlib import Path

from deploy import packages, stamp
from deploy.environment import create, pip, python_version
from deploy.progress import run, step

SGLANG = Path("/opt/inquest/sglang")
MODELS = Path("/var/lib/inquest/models")
JIT = Path("/var/lib/inquest/jit")
# SGLang compiles the matcher of n-grams at its first start, a minute on a small machine.
_COMPILE = "from sglang.kernels.ops.speculative.ngram_corpus import get_ngram_corpus_cls; get_ngram_corpus_cls()"
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
    packages.ensure(*packages.FOR_SGLANG_CPU)
    if not stamp.is_fresh(SGLANG, pins):
        with step(f"SGLang for a machine without a GPU (3 to 8 GB in {SGLANG}, some minutes)"):
            _install_environment(version)
            stamp.set_fresh(SGLANG, pins)
    recipe = stamp.digest([_PARTS / "make_models.py"], pins)
    if not stamp.is_fresh(MODELS, recipe):
        with step(f"tiny models (made here, in {MODELS})"):
            shutil.rmtree(MODELS, ignore_errors=True)
            run([SGLANG / "bin" / "python", _PARTS / "make_models.py", MODELS])
            stamp.set_fresh(MODELS, recipe)
    if not stamp.is_fresh(JIT, pins):
        with step(f"SGLang's matcher of n-grams (compiled into {JIT})"):
            shutil.rmtree(JIT, ignore_errors=True)
            _compile()
            stamp.set_fresh(JIT, pins)


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


def _compile() -> None:
    # The cache's key covers the compilers found on PATH, so PATH has to be the unit's.
    environment = {
        "PATH": f"{SGLANG / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_JIT_CACHE_DIR": str(JIT),
    }
    run([SGLANG / "bin" / "python", "-c", _COMPILE], env=environment)
