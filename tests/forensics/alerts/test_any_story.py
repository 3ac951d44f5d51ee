"""Whatever befalls a server: every death is told once, and what people were told last is how it is."""

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forensics.alerts.desk import HOUR, SECOND, Desk


class Life(NamedTuple):
    """A run: ready after so many seconds or never, dead so many after that, of this."""

    ready_after: int | None
    lived: int
    fingerprint: str
    arrives: bool
    """Whether what was sent meanwhile has arrived, or may have."""


SECONDS = st.one_of(st.integers(1, 90), st.integers(1, 4000), st.integers(1, 100_000))
LIVES = st.lists(
    st.builds(Life, st.none() | SECONDS, SECONDS, st.sampled_from("abc"), st.booleans()), min_size=1, max_size=30
)


def tell(lives: list[Life], last_is_ready: bool) -> Desk:
    desk = Desk()
    desk.now_usec = 1000 * HOUR
    for number, life in enumerate(lives):
        if life.ready_after is not None:
            desk.passes(life.ready_after * SECOND, arrives=life.arrives)
            desk.happens("ready", number=number)
        desk.passes(life.lived * SECOND, arrives=life.arrives)
        if life.ready_after is not None:
            desk.served_until_usec = desk.now_usec
        desk.happens("crash", number=number, fingerprint=life.fingerprint)
    if last_is_ready:
        desk.passes(20 * SECOND)
        desk.happens("ready", number=len(lives))
    for _ in range(3):
        desk.passes(30 * HOUR)
    return desk


@settings(max_examples=150)
@given(LIVES, st.booleans())
def test_every_death_is_told_once_and_the_last_word_is_true(lives: list[Life], last_is_ready: bool) -> None:
    desk = tell(lives, last_is_ready)
    told = [message for _, message in desk.told]
    assert sum(message.count for message in told) == len(lives)
    assert not [message for message in desk.messages if message.state == "waiting"]
    assert told[-1].down != last_is_ready
    assert told[-1].until_usec >= told[-1].since_usec


@settings(max_examples=150)
@given(LIVES, st.booleans())
def test_a_return_is_told_only_to_who_was_told_of_a_death(lives: list[Life], last_is_ready: bool) -> None:
    told = [message for _, message in tell(lives, last_is_ready).told]
    for before, after in pairwise([None, *told]):
        if after is not None and after.kind == "recovered":
            assert before is not None
            assert before.down
            assert after.since_usec <= after.until_usec
