"""What a failure says, in words; and what of it a library may have said."""

import re

import pytest

from forensics.events import FatalPythonError, NativeAbort, Traceback
from forensics.failure import CUDA, decisive_line, headline, innermost, machine_words, said, search, sentence
from tests.forensics.factories import record


def raised(exception: str, text: str, *frames: str, chained: tuple[str, ...] = ()) -> Traceback:
    return Traceback(
        record=record(f"{exception}: {text}"), header="Scheduler hit an exception", process="scheduler", tag="",
        exception=exception, text=text, frames=frames or ("/a/worker.py:1 in verify",), chained=chained,
    )  # fmt: skip


def test_a_chain_is_said_first_cause_first() -> None:
    failure = raised("RuntimeError", "no\nreally", chained=("KeyError: 1",))
    assert said(failure) == "KeyError: 1\nRuntimeError: no\nreally"
    assert headline(failure) == "RuntimeError: no"
    assert innermost(failure) == "worker.py in verify"


def test_of_a_chain_the_line_that_matters_is_quoted() -> None:
    failure = raised("RuntimeError", "wrapped", chained=("ImportError: libx.so: undefined symbol: y",))
    assert decisive_line(failure, search(re.compile("undefined symbol"), failure)).startswith("ImportError: libx")
    assert decisive_line(failure, None) == ""


@pytest.mark.parametrize(
    "failure",
    [
        raised("RuntimeError", "CUDA error: an illegal memory access was encountered"),
        raised("torch.AcceleratorError", "CUDA error: misaligned address"),
        raised("Exception", "Capture cuda graph failed: CUDA error: operation not permitted when stream is capturing"),
        raised("RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
        raised("RuntimeError", "Triton Error [CUDA]: device kernel image is invalid"),
        raised("RuntimeError", "later", chained=("RuntimeError: CUDA error: unspecified launch failure",)),
        NativeAbort(record=record(), exception="c10::Error", what="CUDA error: device-side assert triggered"),
    ],
)
def test_cuda_s_own_words(failure: Traceback | NativeAbort) -> None:
    assert CUDA.search(machine_words(failure))


@pytest.mark.parametrize(
    "failure",
    [
        raised("ValueError", "unknown role: CUDA error: misaligned address"),
        raised("pydantic_core.ValidationError", "1 error\nCUDA error: misaligned address"),
        raised("AssertionError", "<html>CUDA error: misaligned address</html>"),
        raised("RuntimeError", "bad pattern: CUDA error: x", "/x/xgrammar/compiler.py:3 in compile_json_schema"),
        raised("RuntimeError", "CUDA error: x", "/x/srt/constrained/llguidance_backend.py:9 in dispatch"),
        raised("jinja2.exceptions.TemplateError", "CUDA error: x"),
        raised("RuntimeError", "This may lead to CUDA errors."),
        FatalPythonError(record=record(), error="Segmentation fault", process="scheduler", frames=()),
    ],
)
def test_what_somebody_may_have_sent_is_not(failure: Traceback | FatalPythonError) -> None:
    assert CUDA.search(machine_words(failure)) is None


@pytest.mark.parametrize(
    ("text", "whole"), [("a", "a."), ("a.", "a."), ("a..", "a."), ("a: ", "a."), ("cut…", "cut…"), ("why, ", "why.")]
)
def test_a_sentence_ends_once(text: str, whole: str) -> None:
    assert sentence(text) == whole
