"""Of which sources the files hold the time of a death, and which gaps that leaves."""

from forensics.analyze.body import Body
from forensics.analyze.forms import Form
from forensics.events import Gap
from forensics.model import RunRecord

_LATE_USEC = 2_000_000


def covered(body: Body, record: RunRecord) -> tuple[set[str], list[Gap]]:
    """The sources that the files hold for this run's end, and the gaps for those that they do not."""
    died = record.ended_realtime_usec or record.last_realtime_usec
    sources: set[str] = set()
    gaps = [
        gap
        for unit, usec, gap in body.gaps
        if unit in ("", record.unit) and record.first_usec <= usec <= (record.ended_usec or usec) + 300_000_000
    ]
    for file in body.files:
        if file.damage:
            gaps.append(Gap(source="server", reason=f"{file.name} is damaged: {file.damage}"))
        first_usec, last_usec = file.span_usec(body.offset_usec)
        spans = first_usec is not None and first_usec <= died <= last_usec + _LATE_USEC
        whole = file.foreign or file.form is Form.JOURNAL
        kernel_only = file.form in (Form.KERNEL, Form.DMESG_JSON) or (file.kernel and not file.manager and not whole)
        if kernel_only:
            sources |= {"kernel"} if spans else set()
        elif whole and spans:
            sources |= {"kernel", "systemd", "server", "coredump", "oomkillers"}
        elif file.manager:
            sources |= {"systemd", "server", "coredump"} | ({"kernel"} if file.kernel else set())
    if record.invocation_id in body.log_of:
        sources.add("server")
    if "kernel" not in sources:
        gaps.append(Gap(source="kernel", reason=_no_kernel(body)))
    if "systemd" not in sources:
        gaps.append(Gap(source="systemd", reason="no record of systemd is among the files (`journalctl -u UNIT`)"))
    return sources, list(dict.fromkeys(gaps))


def _no_kernel(body: Body) -> str:
    if any(file.form in (Form.KERNEL, Form.DMESG_JSON) for file in body.files):
        if body.undated or (body.offset_usec is None and any(file.first_mono_usec is not None for file in body.files)):
            return "the kernel log has only the time since boot, and nothing here says when that was"
        return "the kernel log among the files does not reach to the death"
    return "no kernel log is among the files (`journalctl -k`, `dmesg -T`)"
