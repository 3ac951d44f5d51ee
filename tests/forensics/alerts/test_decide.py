"""Which messages arise: what happened on the left, what the channel was told on the right. Names T_F… are wishes of
people who were told too much, too little, or twice."""

import random
from itertools import pairwise

import pytest

from forensics.alerts.decide import Manner
from tests.forensics.alerts.desk import HOUR, MANNER, MINUTE, SECOND, Desk


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    made.now_usec = 1000 * HOUR
    made.served_until_usec = made.now_usec
    return made


def test_one_death_one_message(desk: Desk) -> None:
    desk.happens("crash")
    desk.passes(0)
    assert desk.kinds == ["crash"]


def test_repeats_are_gathered_and_told_at_growing_intervals(desk: Desk) -> None:
    """A server that dies every two minutes for two days, and is never ready."""
    began = desk.now_usec
    for number in range(2 * 24 * 30):
        desk.happens("crash", number=number)
        desk.passes(2 * MINUTE)
    assert desk.kinds == ["crash"] + ["folded"] * 4
    told = [(at - began) // MINUTE for at, _ in desk.told]
    assert told == [0, 10, 70, 430, 1870]
    assert desk.counts("folded") == [4, 30, 180, 720], "every death is counted once"
    assert [message.until_usec - message.since_usec for _, message in desk.told[1:3]] == [8 * MINUTE, 60 * MINUTE]


def test_another_death_is_told_by_itself(desk: Desk) -> None:
    desk.happens("crash", number=1)
    desk.passes(MINUTE)
    desk.happens("crash", number=2, fingerprint="f2")
    desk.passes(0)
    assert desk.kinds == ["crash", "crash"]


def test_a_channel_that_gathers_nothing_is_told_each(desk: Desk) -> None:
    desk.manner = Manner()
    for number in range(5):
        desk.happens("crash", number=number)
        desk.passes(SECOND)
    assert desk.kinds == ["crash"] * 5


def test_nothing_is_gathered_into_what_may_have_arrived(desk: Desk) -> None:
    """Its count would change behind the back of a receiver that knows it by its id."""
    desk.happens("crash", number=1)
    desk.passes(MINUTE)
    desk.happens("crash", number=2)
    desk.passes(10 * MINUTE, arrives=False)
    desk.happens("crash", number=3)
    assert [(one.kind, one.count) for one in desk.messages[1:]] == [("folded", 1), ("folded", 1)]


# --- back again ----------------------------------------------------------------------------------------------


def test_a_server_that_stays_ready_is_told_to_be_back(desk: Desk) -> None:
    desk.happens("crash")
    desk.passes(4 * MINUTE)
    desk.happens("ready", number=2)
    desk.passes(29 * SECOND)
    assert desk.kinds == ["crash"]
    desk.passes(SECOND)
    assert desk.kinds == ["crash", "recovered"]
    back = desk.told[-1][1]
    assert (back.about, back.until_usec - back.since_usec) == (f"{1:032x}", 4 * MINUTE)
    assert not back.count, "no death that was not told"


def test_how_long_it_was_away_counts_from_when_it_last_served(desk: Desk) -> None:
    desk.served_until_usec = desk.now_usec
    for number in range(3):
        desk.passes(MINUTE)
        desk.happens("crash", number=number)
    desk.passes(MINUTE)
    desk.happens("ready", number=9)
    desk.passes(30 * SECOND)
    back = desk.told[-1][1]
    assert (back.kind, back.until_usec - back.since_usec, back.count) == ("recovered", 4 * MINUTE, 2)


def test_a_server_of_which_nobody_was_told_is_not_told_to_be_back(desk: Desk) -> None:
    desk.happens("ready")
    desk.happens("crash", number=2, wanted=False)
    desk.happens("ready", number=3)
    desk.passes(HOUR)
    assert desk.told == []


def test_a_server_that_dies_before_it_is_told_to_be_back_is_not(desk: Desk) -> None:
    desk.happens("crash", number=1)
    desk.passes(MINUTE)
    desk.happens("ready", number=2)
    desk.passes(20 * SECOND)
    desk.happens("crash", number=2)
    desk.passes(15 * SECOND)
    assert desk.kinds == ["crash"]
    desk.happens("ready", number=3)
    desk.passes(HOUR)
    assert desk.kinds == ["crash", "recovered"]
    assert desk.counts("recovered") == [1], "it says what was not told yet"


def test_what_is_gathered_of_a_server_that_is_back_says_so(desk: Desk) -> None:
    desk.happens("crash", number=1)
    desk.passes(MINUTE)
    desk.happens("ready", number=2)
    desk.passes(MINUTE)
    desk.happens("crash", number=2)
    desk.passes(MINUTE)
    desk.happens("ready", number=3)
    ready_usec = desk.now_usec
    desk.passes(HOUR)
    assert desk.kinds == ["crash", "recovered", "folded"]
    assert desk.told[-1][1].back_usec == ready_usec
    desk.happens("ready", number=4)
    desk.passes(HOUR)
    assert desk.kinds == ["crash", "recovered", "folded"], "it was told already"


def test_a_server_that_is_thought_to_be_up_and_stays_down_is_not_gathered_for_hours(desk: Desk) -> None:
    """Repeats are at the rung of six hours; the server came back each time, but for the last."""
    for number in range(8):
        desk.happens("crash", number=number)
        desk.passes(MINUTE)
        desk.happens("ready", number=number + 1)
        desk.passes(10 * MINUTE)
    told = desk.kinds
    assert told == ["crash", "recovered", "folded", "recovered", "folded"]
    assert not desk.told[-1][1].down
    desk.happens("crash", number=9)
    desk.passes(59 * MINUTE)
    assert desk.kinds == told
    desk.passes(MINUTE)
    assert desk.kinds == [*told, "folded"]
    assert desk.told[-1][1].down
    desk.happens("ready", number=10)
    desk.passes(MINUTE)
    assert desk.kinds == [*told, "folded", "recovered"]


# --- given up ------------------------------------------------------------------------------------------------


def test_a_server_that_systemd_gave_up_is_told_at_once_with_what_was_gathered(desk: Desk) -> None:
    for number in range(5):
        desk.happens("crash", number=number)
        desk.passes(10 * SECOND)
    desk.happens("start-limit", at_usec=desk.now_usec - 10 * SECOND, number=4)
    desk.passes(0)
    assert desk.kinds == ["crash", "start-limit"]
    last = desk.told[-1][1]
    assert (last.count, last.until_usec - last.since_usec) == (5, 40 * SECOND)
    desk.passes(24 * HOUR)
    assert desk.kinds == ["crash", "start-limit"], "nothing is told twice"
    desk.happens("ready", number=9)
    desk.passes(HOUR)
    assert desk.kinds == ["crash", "start-limit", "recovered"]


# --- corrections ---------------------------------------------------------------------------------------------


def test_who_was_told_is_told_the_correction(desk: Desk) -> None:
    desk.happens("crash")
    desk.passes(0)
    desk.happens("amended", revision=2, cause="kernel-oom", fingerprint="f2", wanted=False)
    desk.passes(0)
    assert desk.kinds == ["crash", "amended"]


def test_who_was_not_told_yet_is_told_the_new_verdict_alone(desk: Desk) -> None:
    desk.happens("crash")
    desk.happens("amended", revision=2, cause="kernel-oom", fingerprint="f2")
    desk.passes(0)
    assert [(message.kind, message.revision) for _, message in desk.told] == [("crash", 2)]


def test_a_crash_that_was_none_is_taken_back_only_where_it_was_told(desk: Desk) -> None:
    desk.happens("crash", number=1)
    desk.happens("amended", number=1, revision=2, is_crash=False)
    desk.passes(0)
    assert desk.told == []
    desk.happens("crash", number=2)
    desk.passes(0)
    desk.happens("amended", number=2, revision=2, is_crash=False)
    desk.passes(0)
    assert desk.kinds == ["crash", "amended"]
    desk.happens("ready", number=3)
    desk.passes(HOUR)
    assert desk.kinds == ["crash", "amended"], "nothing was away"


def test_a_verdict_that_becomes_an_alarm_is_one(desk: Desk) -> None:
    desk.happens("crash", cause="stop-timeout", wanted=False)
    desk.happens("amended", revision=2, cause="kernel-oom", fingerprint="f2")
    desk.passes(0)
    assert desk.kinds == ["crash"]


# --- hangs ---------------------------------------------------------------------------------------------------


def test_a_hang_and_its_end(desk: Desk) -> None:
    desk.happens("hang", details={"said": "nothing"})
    desk.passes(0)
    desk.passes(2 * MINUTE)
    desk.happens("answering")
    desk.passes(0)
    desk.happens("answering")
    desk.passes(0)
    assert desk.kinds == ["hang", "answering"]
    assert desk.told[-1][1].until_usec - desk.told[-1][1].since_usec == 2 * MINUTE


def test_a_hang_that_ends_in_death_and_in_a_new_run(desk: Desk) -> None:
    desk.happens("hang")
    desk.passes(MINUTE)
    desk.happens("crash")
    desk.passes(MINUTE)
    desk.happens("ready", number=2)
    desk.passes(MINUTE)
    assert desk.kinds == ["hang", "crash", "recovered"]


def test_a_hang_that_nobody_saw_yet_is_not_told_when_it_is_over(desk: Desk) -> None:
    desk.happens("hang")
    desk.happens("answering")
    desk.passes(HOUR)
    assert desk.told == []


# --- wishes --------------------------------------------------------------------------------------------------


def test_T_F1_a_flood_of_one_cause_pages_once(desk: Desk) -> None:
    """8,000 deaths of 29 kinds within the hour: at most 29 first messages, and each death is counted."""
    chance = random.Random(1)
    for number in range(8000):
        desk.happens("crash", number=number, fingerprint=f"f{chance.randrange(29)}")
        if number % 100 == 0:
            desk.passes(40 * SECOND)
    desk.passes(48 * HOUR)
    assert desk.kinds.count("crash") == 29
    assert sum(message.count for _, message in desk.told) == 8000
    assert len(desk.told) <= 29 * 4


@pytest.mark.parametrize("every_minutes", [1, 7, 20, 59])
@pytest.mark.parametrize("ready_between", [False, True])
def test_T_F4_one_incident_pages_at_most_once_an_hour(desk: Desk, every_minutes: int, ready_between: bool) -> None:
    for number in range(24 * 60 // every_minutes):
        desk.happens("crash", number=number)
        desk.passes(every_minutes * MINUTE // 2)
        if ready_between:
            desk.happens("ready", number=number + 1)
            desk.served_until_usec = desk.now_usec
        desk.passes(every_minutes * MINUTE - every_minutes * MINUTE // 2)
    pages = [at for at, message in desk.told if message.kind == "crash"]
    assert all(later - earlier >= HOUR for earlier, later in pairwise(pages))
    assert len(desk.told) <= 8, desk.kinds


def test_T_F5_resolved_is_sent_once(desk: Desk) -> None:
    desk.happens("crash", number=1)
    desk.passes(MINUTE)
    for number in range(2, 6):
        desk.happens("ready", number=number)
        desk.passes(MINUTE)
    desk.happens("amended", number=1, at_usec=desk.now_usec - 5 * MINUTE, revision=2, strength="likely")
    desk.happens("ready", number=7)
    desk.passes(HOUR)
    assert desk.kinds == ["crash", "recovered", "amended"]


@pytest.mark.parametrize("ends", ["start-limit", "ready"])
def test_T_F6_a_hundred_restarts_in_a_minute_are_two_messages(desk: Desk, ends: str) -> None:
    for number in range(100):
        desk.happens("crash", number=number)
        desk.passes(300_000)
        desk.happens("ready", number=number + 1)
        desk.passes(300_000)
    if ends == "start-limit":
        desk.happens("crash", number=100)
        desk.happens("start-limit", number=100)
    desk.passes(24 * HOUR)
    assert desk.kinds == ["crash", "start-limit" if ends == "start-limit" else "recovered"]
    assert desk.told[-1][1].count == (101 if ends == "start-limit" else 99)


def test_T_F7_a_late_verdict_on_an_old_run_does_not_call_the_server_down(desk: Desk) -> None:
    desk.happens("crash", number=1)
    desk.passes(MINUTE)
    desk.happens("ready", number=2)
    desk.passes(10 * MINUTE)
    assert desk.kinds == ["crash", "recovered"]
    desk.happens("amended", number=1, revision=2, at_usec=desk.now_usec - 11 * MINUTE, cause="kernel-oom")
    desk.passes(0)
    assert desk.kinds == ["crash", "recovered", "amended"]
    assert not desk.told[-1][1].down


@pytest.mark.parametrize("seed", range(20))
def test_T_F8_the_order_in_which_old_deaths_are_read_does_not_matter(seed: int) -> None:
    """A daemon that was down for an hour judges what died meanwhile, in whatever order."""
    deaths = [(minute * MINUTE, number, f"f{number % 2}") for number, minute in enumerate(range(0, 50, 5))]
    random.Random(seed).shuffle(deaths)
    desk = Desk()
    desk.now_usec = 60 * MINUTE
    for at_usec, number, fingerprint in deaths:
        desk.happens("crash", number=number, at_usec=at_usec, fingerprint=fingerprint)
    desk.happens("ready", number=99, at_usec=55 * MINUTE)
    desk.passes(48 * HOUR)
    assert sorted(desk.kinds) == ["crash", "crash", "recovered"]
    assert desk.told[-1][1].count == 8


def test_T_F9_T_F10_only_what_is_alike_is_gathered(desk: Desk) -> None:
    for number, fingerprint in enumerate(["a", "b", "a", "c", "b", "a"]):
        desk.happens("crash", number=number, fingerprint=fingerprint)
        desk.passes(SECOND)
    desk.passes(HOUR)
    assert desk.kinds.count("crash") == 3
    told = {message.fingerprint: message.count for _, message in desk.told if message.kind == "folded"}
    assert told == {"a": 2, "b": 1}


def test_the_manner_of_the_tests_is_the_default() -> None:
    from forensics.settings import Alerts

    assert (Alerts().gather_seconds, Alerts().stays_ready_seconds) == (MANNER.gather_seconds, MANNER.stays_seconds)
