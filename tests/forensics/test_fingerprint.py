"""One name for the same death."""

import pytest

from forensics.failure import stable
from forensics.fingerprint import digest, signature


def test_the_signature_is_readable_and_says_each_part_once() -> None:
    assert signature("cuda-oom", "weights", ("cuda-oom", "", "while  loading")) == "cuda-oom | weights | while loading"


def test_the_digest_is_of_the_signature() -> None:
    assert digest("a") == digest("a") != digest("b")
    assert len(digest("a")) == 16


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The size of tensor a (160) must match b (2)", "The size of tensor a (96) must match b (12)"),
        ("illegal access at 0x7f31a9c00000", "illegal access at 0x1"),
        ("cannot open /srv/models/a/config.json", "cannot open /data/b/config.json"),
        ("bind on ('127.0.0.1', 30000)", "bind on ('127.0.0.1', 30100)"),
        ("[rank3] at 11:20:01.512", "[rank0] at 09:01:59.000"),
        ("batch of 48 took 1.5 s", "batch of 3 took 12.25 s"),
    ],
)
def test_numbers_addresses_and_folders_do_not_count(one: str, other: str) -> None:
    assert stable(one) == stable(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("KeyError: 'draft'", "KeyError: 'target'"),
        ("cannot open /a/config.json", "cannot open /a/tokenizer.json"),
        ("RuntimeError: x", "ValueError: x"),
    ],
)
def test_words_do(one: str, other: str) -> None:
    assert stable(one) != stable(other)
