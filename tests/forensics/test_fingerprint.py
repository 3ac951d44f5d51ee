"""One name for the same death."""

import pytest

from forensics.failure import stable
from forensics.fingerprint import digest, signature
from tests.forensics.rules.telling import SERVE, told


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
        ("KeyError: 'dc49ad867dc144249f59f4e85c7229cd'", "KeyError: '0b1e5c3320aa4f6d8f3a9c77d1e2f304'"),
        ("rid 9f0e2b3a-4c5d-4e6f-9a0b-1c2d3e4f5a6b", "rid 00000000-aaaa-4bbb-8ccc-dddddddddddd"),
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


def test_numbers_of_other_lengths_do_not_move_the_cut() -> None:
    """A line longer than what counts of it: the death of 160 tokens and that of 12345678 are the same."""

    def fingerprint(number: int) -> str:
        error = f"ValueError: {' '.join(f'pool {number} of {number}' for _ in range(9))} is used up"
        return told(lambda j, life: life.up().scheduler_raised(SERVE, error).self_kill()).fingerprint

    assert fingerprint(2) == fingerprint(12_345_678)
