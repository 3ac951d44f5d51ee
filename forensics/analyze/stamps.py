"""Time stamps at the beginning of a line, in the forms and languages in which logs are saved. Pure.

A stamp without a zone is read as UTC and says so (`naive`); one without a year takes the year that fits `reference`.
"""

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Abbreviated and full names of the months as glibc and ICU print them; a prefix of three letters, accents removed,
# decides unless a language says otherwise.
_NAMES = (
    "jan january janvier januar enero gennaio janeiro januari januari tammi leden ledna styczen stycznia sty oca ocak"
    " янв января ianuarie ian genn gen ene led siječnja led. jän jänner",
    "feb february fevrier fev februar febrero febbraio fevereiro helmi unor unora lut luty lutego subat sub фев февраля"
    " febr fevr uno helmikuu veljace",
    "mar march mars marz mart marzo marco maart mrz maalis brezen brezna marca мар марта mrt bre mär märz",
    "apr april avril avr abril abr aprile huhti duben dubna kwi kwiecien kwietnia nis nisan апр апреля dub",
    "may mai mayo mag maggio maio mei maj toukokuu touko kveten kvetna maja май мая kve",
    "jun june juin juni junio giugno giu junho kesa kesakuu cerven cervna cze czerwiec czerwca haziran haz июн июня"
    " iunie iun cer jui.",
    "jul july juillet juil juli julio luglio lug julho heina cervenec cervence lip lipiec lipca temmuz tem июл июля"
    " iulie iul cvc heinakuu",
    "aug august aout aou agosto ago augustus elo elokuu srpen srpna sie sierpien sierpnia agu agustos авг августа srp"
    " sier",
    "sep september septembre sept set septiembre settembre setembro syys syyskuu zari zar wrz wrzesien wrzesnia eyl"
    " eylul сен сентября",
    "oct october octobre okt oktober octubre ottobre ott outubro out loka lokakuu rijen rijna paz pazdziernik"
    " pazdziernika eki ekim окт октября rij october.",
    "nov november novembre noviembre novembro marras marraskuu listopad listopadu lis listopada kas kasim ноя ноября",
    "dec december decembre dez dezember dic diciembre dicembre dezembro des desember joulu joulukuu prosinec prosince"
    " gru grudzien grudnia ara aralik дек декабря pro",
)


def _plain(word: str) -> str:
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char)).replace("ł", "l").strip(".")


_MONTHS = {_plain(name): number for number, names in enumerate(_NAMES, start=1) for name in names.split()}
_ASIAN = re.compile(r"(\d{1,2}) ?[月월]")

_TIME = r"(?P<h>\d{1,2}):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_DATE = r"(?P<Y>\d{4})-(?P<M>\d\d)-(?P<D>\d\d)"
_OFFSET = r"[+-]\d\d(?::?\d\d)?"
_MONTH = r"(?:\d{1,2} ?[月월]|[^\W\d_]{3,12}\.?)"
_WEEKDAY = r"(?:[^\W\d]{1,12}\.?|[一-鿿]{1,4})"
_ISO = re.compile(rf"{_DATE}[T ]{_TIME}(?: ?(?P<z>Z|{_OFFSET})(?![\d:]))?(?P<end>[ \t:|\]]|$)")
_FULL = re.compile(rf"{_WEEKDAY} {_DATE} {_TIME}(?: (?P<z>[A-Z]{{2,5}}|{_OFFSET}))? ")
_SYSLOG = re.compile(rf"(?P<mon>{_MONTH}) +(?P<D>\d{{1,2}})(?:日|일|\.)? {_TIME}(?: (?P<z>[+-]\d\d:?\d\d))? ")
_DAY_FIRST = re.compile(rf"(?P<D>\d{{1,2}})\.? (?P<mon>[^\W\d_]{{3,12}}\.?) {_TIME} ")
_CTIME = re.compile(
    rf"\[{_WEEKDAY},? +(?:(?P<mon>{_MONTH}) +(?P<D>\d{{1,2}})(?:日|일|\.)?"
    rf"|(?P<D2>\d{{1,2}})\.? (?P<mon2>[^\W\d_]{{3,12}}\.?)) +{_TIME} (?P<Y>\d{{4}})\] ?"
)
_MONO = re.compile(r"\[ *(?P<sec>\d{1,10})\.(?P<f>\d{3,9})\] ?")
_UNIX = re.compile(r"(?P<sec>1\d{9})\.(?P<f>\d{3,9}) ")
_CLOCK = re.compile(rf"{_TIME}(?= )")
_SPARED_ZONES = {"UTC": 0, "GMT": 0, "CET": 60, "CEST": 120, "EET": 120, "EEST": 180, "EST": -300, "EDT": -240,
                 "CST": -360, "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420, "JST": 540, "KST": 540,
                 "IST": 330, "BST": 60, "WEST": 60, "WET": 0, "MSK": 180, "AEST": 600, "AEDT": 660}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stamp:
    """`realtime_usec` since the epoch, or `monotonic_usec` since boot, whichever the line has; `form` names which.

    `clock` is True for a time of day without a date: then `realtime_usec` counts from midnight.
    """

    form: str
    realtime_usec: int | None = None
    monotonic_usec: int | None = None
    naive: bool = False
    clock: bool = False


def month(word: str) -> int | None:
    """1 to 12 from a month's name or abbreviation, or None."""
    if asian := _ASIAN.fullmatch(word.strip()):
        number = int(asian[1])
        return number if 1 <= number <= 12 else None
    plain = _plain(word)
    return _MONTHS.get(plain) or (_MONTHS.get(plain[:3]) if plain.isascii() else None)


def parse(line: str, reference: datetime) -> tuple[Stamp, int] | None:
    """The stamp at the beginning of a line and the index at which the rest begins; None when there is none.

    `reference` is a moment not long after the log was written, such as the file's time: it gives missing years.
    """
    first = line[:1]
    if first == "[":
        if found := _MONO.match(line):
            return Stamp("mono", monotonic_usec=int(found["sec"]) * 1_000_000 + _fraction(found["f"])), found.end()
        if found := _CTIME.match(line):
            return _dated("ctime", found, reference)
        return None
    if first.isdigit():
        if found := _ISO.match(line):
            stamp = _dated("iso", found, reference)
            return (stamp[0], found.end("end") if found["end"] in " \t" else found.start("end")) if stamp else None
        if found := _UNIX.match(line):
            return Stamp("unix", realtime_usec=int(found["sec"]) * 1_000_000 + _fraction(found["f"])), found.end()
        if found := _SYSLOG.match(line) or _DAY_FIRST.match(line):
            return _dated("syslog", found, reference)
        if found := _CLOCK.match(line):
            usec = _time_usec(found)
            return None if usec is None else (Stamp("clock", realtime_usec=usec, naive=True, clock=True), found.end())
        return None
    if first.isalpha():
        if found := _FULL.match(line):
            return _dated("full", found, reference)
        if found := _SYSLOG.match(line):
            return _dated("syslog", found, reference)
    return None


def _fraction(text: str | None) -> int:
    return int((text or "0").ljust(6, "0")[:6])


def _time_usec(found: re.Match[str]) -> int | None:
    hour, minute, second = int(found["h"]), int(found["m"]), int(found["s"])
    if hour > 23 or minute > 59 or second > 60:
        return None
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + _fraction(found["f"])


def _dated(form: str, found: re.Match[str], reference: datetime) -> tuple[Stamp, int] | None:
    at = found.groupdict()
    time_usec = _time_usec(found)
    if time_usec is None:
        return None
    if at.get("M"):
        number: int | None = int(at["M"])
    else:
        number = month(at.get("mon") or at.get("mon2") or "")
    day = int(at.get("D") or at.get("D2") or 0)
    if number is None:
        return None
    date = _date(int(at["Y"]) if at.get("Y") else None, number, day, reference)
    if date is None:
        return None
    minutes, naive = _offset_minutes(at.get("z"))
    usec = (date - _EPOCH) // timedelta(microseconds=1) + time_usec - minutes * 60_000_000
    return Stamp(form, realtime_usec=usec, naive=naive), found.end()


def _date(year: int | None, number: int, day: int, reference: datetime) -> datetime | None:
    try:
        if year is not None:
            return datetime(year, number, day, tzinfo=UTC)
        guess = datetime(reference.year, number, day, tzinfo=UTC)
        if guess > reference + timedelta(days=2):
            guess = datetime(reference.year - 1, number, day, tzinfo=UTC)
    except ValueError:
        # The 29th of February, of a year that is not the reference's.
        if year is None and (number, day) == (2, 29):
            leap = reference.year - reference.year % 4
            return datetime(leap, 2, 29, tzinfo=UTC) if leap % 100 else None
        return None
    return guess


def _offset_minutes(zone: str | None) -> tuple[int, bool]:
    """Minutes east of UTC, and whether that is only assumed."""
    if zone is None:
        return 0, True
    if zone == "Z":
        return 0, False
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        minutes = int(digits[:2]) * 60 + int(digits[2:4])
        return (minutes if zone[0] == "+" else -minutes), False
    return (_SPARED_ZONES[zone], False) if zone in _SPARED_ZONES else (0, True)


def when(usec: int) -> datetime:
    """A moment from microseconds since the epoch; the nearest one that a date can hold."""
    try:
        return datetime.fromtimestamp(usec / 1e6, UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.max.replace(tzinfo=UTC) if usec > 0 else datetime.min.replace(tzinfo=UTC)
