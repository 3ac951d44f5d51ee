"""A message that looks true: what `inquest alerts test` sends."""

from datetime import datetime, timedelta
from typing import cast

from forensics.alerts.words import TEST
from forensics.api.examples import EXAMPLES
from forensics.public import usec, when
from forensics.shapes import CrashShape
from forensics.store import Delivery


def sample(channel: str, now: datetime) -> Delivery:
    """The death of a server called demo, of which the API's description tells too, a moment ago."""
    at_usec = usec(now)
    crash = cast(CrashShape, {**EXAMPLES["crash"], "started_at": when(usec(now - timedelta(hours=4)))})
    crash["died_at"] = when(at_usec)
    return Delivery(
        id=0,
        sink=channel,
        kind=TEST,
        unit=crash["unit"],
        attempts=1,
        crash=crash,
        key=f"test-{at_usec:x}",
        since_usec=at_usec,
        until_usec=at_usec,
        details={"cause": crash["cause"], "family": crash["family"]},
    )
