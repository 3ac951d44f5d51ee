"""What is odd about a living server's speculation, told once as a record in the journal. Pure."""

from forensics.history import configuration
from forensics.model import RunRecord
from forensics.public import server_name
from forensics.report import one_line
from forensics.runs.speculation import USELESS_BELOW, remark
from forensics.timeline import Timeline

SPECULATION_REMARKED = "45840692c5764868991af0ce45625e7e"
"""MESSAGE_ID of the notice."""

ENOUGH_TOKENS = 2000
"""More than for what is only listed: a first prompt that no draft could guess is not to wake anybody."""


def notice(record: RunRecord) -> dict[str, str] | None:
    """The record's fields, MESSAGE among them; None where there is nothing to tell, or it was told."""
    decoding = record.decoding
    length = decoding.accept_length
    # Asked every second: what is ordinary at a glance costs nothing.
    if record.remarked or length is None:
        return None
    if length >= USELESS_BELOW and decoding.accept_length_least != decoding.accept_length_most:
        return None
    said = remark(decoding, configuration(Timeline.of(record.events)), enough=ENOUGH_TOKENS)
    if said is None:
        return None
    return {
        "MESSAGE": f"{server_name(record.unit)}: {one_line(said)}",
        "MESSAGE_ID": SPECULATION_REMARKED,
        "PRIORITY": "5",
        "SYSLOG_IDENTIFIER": "inquestd",
        "INQUEST_UNIT": record.unit,
        "INQUEST_INVOCATION_ID": record.invocation_id,
        "INQUEST_ACCEPT_LENGTH": f"{length:.2f}",
    }
