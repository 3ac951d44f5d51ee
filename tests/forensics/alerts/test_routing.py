"""Who is told: the routes of a settings file on the left, the channels that are told on the right."""

import tomllib
from typing import Any

import pytest

from forensics.alerts import addressees
from forensics.settings import Settings
from forensics.store.telling import Happening, Past

CHANNELS = """
[[webhooks]]
name = "on-call"
url = "http://x"
[[commands]]
name = "siren"
argv = ["/bin/true"]
"""


def told(routes: str, **changes: Any) -> list[str]:
    """The channels that are told of a death, the journal apart."""
    settings = Settings.model_validate({"alerts": tomllib.loads(CHANNELS + routes)})
    given: dict[str, Any] = {
        "kind": "crash",
        "unit": "sglang-demo.service",
        "invocation_id": "1" * 32,
        "at_usec": 1,
        "now_usec": 1,
        "cause": "kernel-oom",
        "family": "kernel-oom",
        "strength": "confirmed",
    }
    happening = Happening(**(given | changes))
    found = [one.name for one in addressees(settings) if one.decide(happening, Past())]
    assert found[0] == "journal", "it is told everything"
    return found[1:]


BOTH = ["on-call", "siren"]


@pytest.mark.parametrize(
    ("routes", "changes", "expected"),
    [
        ("", {}, BOTH),
        ("", {"cause": "unknown", "family": "unknown", "strength": None}, BOTH),
        ("", {"kind": "hang", "cause": "", "family": "", "strength": None}, BOTH),
        ("", {"kind": "start-limit"}, BOTH),
        ("", {"cause": "stop-timeout"}, []),
        ('[[routes]]\ncauses = ["stop-timeout"]', {"cause": "stop-timeout"}, BOTH),
        ('[[routes]]\ncauses = ["stop-timeout"]\nto = ["on-call"]', {"cause": "stop-timeout"}, ["on-call"]),
        ('[[routes]]\nservers = ["dev-*"]\nto = []', {"unit": "sglang-dev-1.service"}, []),
        ('[[routes]]\nservers = ["dev-*"]\nto = []', {}, BOTH),
        ('[[routes]]\nservers = ["sglang-*.service"]\nto = ["siren"]', {}, ["siren"]),
        ('[[routes]]\nfamilies = ["kernel-oom"]\nto = ["siren"]', {}, ["siren"]),
        ('[[routes]]\nfamilies = ["cuda"]\nto = ["siren"]', {}, BOTH),
        ('[[routes]]\nstrengths = ["none"]\nto = []', {"strength": None}, []),
        ('[[routes]]\nstrengths = ["none", "likely"]\nto = []', {}, BOTH),
        ('[[routes]]\nkinds = ["start-limit"]\nto = ["siren"]', {"kind": "start-limit"}, ["siren"]),
        ('[[routes]]\nkinds = ["crash"]\nto = ["siren"]', {"kind": "amended"}, ["siren"]),
        ('[[routes]]\nkinds = ["hang"]\nto = []', {"kind": "hang"}, []),
        # Every condition has to fit, and the first route that fits decides.
        ('[[routes]]\nservers = ["demo"]\ncauses = ["hang"]\nto = []', {}, BOTH),
        ('[[routes]]\nservers = ["demo"]\nto = ["siren"]\n[[routes]]\nto = []', {}, ["siren"]),
        ('[[routes]]\nservers = ["demo"]\nto = ["siren"]\n[[routes]]\nto = []', {"unit": "sglang-b.service"}, []),
    ],
)
def test_who_is_told(routes: str, changes: dict[str, Any], expected: list[str]) -> None:
    assert told(routes, **changes) == expected
