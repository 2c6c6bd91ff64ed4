"""Dates, times and timestamps as Postgres counts them: days and microseconds since 2000-01-01, UTC.

What is written is what a server writes with `DateStyle = ISO` and `TimeZone = UTC`. What is read is that, and the ISO
forms in which people write constants; other forms depend on settings of the server and are refused.
"""

import datetime as dt
import re
from typing import Final

from shapes.where.values.intervals import DAY, Interval
from shapes.where.values.value import Invalid

HOUR: Final = 3_600_000_000
MINUTE: Final = 60_000_000
SECOND: Final = 1_000_000

DATE_INFINITY: Final = 2**31 - 1
DATE_MINUS_INFINITY: Final = -(2**31)
INFINITY: Final = 2**63 - 1
"""The timestamp above all others."""
MINUS_INFINITY: Final = -(2**63)

_ERA_DAYS: Final = 146_097  # in 400 years
_EPOCH_ORDINAL: Final = dt.date(2000, 1, 1).toordinal()
_ERA: Final = re.compile(r"\b(BC|AD)$", re.IGNORECASE)
_DATE: Final = re.compile(r"(\d{4,7})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIME: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?", re.ASCII)
_ZONE: Final = re.compile(r"Z|UTC|GMT|([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII | re.IGNORECASE)
_NAMES: Final = {
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamp with time zone",
}


def days_of(year: int, month: int, day: int) -> int:
    """Days since 2000-01-01; year 0 is 1 BC."""
    era, year_of_era = divmod(year, 400)
    # Python knows years from 1 on: the same date, one or two eras later.
    return dt.date(year_of_era + 400, month, day).toordinal() + (era - 1) * _ERA_DAYS - _EPOCH_ORDINAL


def date_of(days: int) -> tuple[int, int, int]:
    """Year, month and day."""
    era, rest = divmod(days + _EPOCH_ORDINAL - 1, _ERA_DAYS)
    found = dt.date.fromordinal(rest + 1)
    return found.year + era * 400, found.month, found.day


_FIRST_DAY: Final = days_of(-4713, 11, 24)
_LAST_DATE: Final = days_of(5874897, 12, 31)
_TIMESTAMPS_END: Final = days_of(294277, 1, 1) * DAY


def _wrong(text: str, kind: str) -> Invalid:
    example = {"date": "2024-01-31", "time": "23:59:59.5", "timestamp": "2024-01-31 23:59:59.5"}
    right = example.get(kind, "2024-01-31 23:59:59.5+00")
    return Invalid(f'invalid input syntax for type {_NAMES[kind]}: "{text}" (write it like {right})')


def read_date(text: str) -> int:
    """Days, or one of the infinities."""
    stripped = text.strip()
    special = {"infinity": DATE_INFINITY, "-infinity": DATE_MINUS_INFINITY, "epoch": days_of(1970, 1, 1)}
    if stripped.lower() in special:
        return special[stripped.lower()]
    body, is_bc = _without_era(stripped)
    match = _DATE.fullmatch(body)
    if match is None:  # a time behind the date does not count
        return timestamp_to_date(read_timestamp(text, "timestamp"))
    return date_in_range(_days(match, is_bc, text, "date"))


def read_time(text: str) -> int:
    """Microseconds since midnight, 24:00:00 included."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise _wrong(text, "time")
    return _time(match, text, "time")


def read_timestamp(text: str, kind: str) -> int:
    """Microseconds, or one of the infinities. A zone counts for `timestamptz` only, as in Postgres."""
    stripped = text.strip()
    special = {"infinity": INFINITY, "-infinity": MINUS_INFINITY, "epoch": days_of(1970, 1, 1) * DAY}
    if stripped.lower() in special:
        return special[stripped.lower()]
    body, is_bc = _without_era(stripped)
    date = _DATE.match(body)
    if date is None:
        raise _wrong(text, kind)
    rest = body[date.end() :]
    micros = 0
    if rest:
        time = _TIME.match(rest.lstrip(" ")) if rest[0] == " " else _TIME.match(rest, 1) if rest[0] in "Tt" else None
        if time is None:
            raise _wrong(text, kind)
        micros = _time(time, text, kind)
        zone = time.string[time.end() :].strip(" ")
        offset = _offset(zone, text, kind)
        micros -= offset if kind == "timestamptz" else 0
    return timestamp_in_range(_days(date, is_bc, text, kind) * DAY + micros)


def _without_era(text: str) -> tuple[str, bool]:
    match = _ERA.search(text)
    return (text[: match.start()].rstrip(), match[1].upper() == "BC") if match else (text, False)


def _days(match: "re.Match[str]", is_bc: bool, text: str, kind: str) -> int:  # noqa: FBT001 - a fact of the match
    year, month, day = map(int, match.groups())
    try:
        return days_of(1 - year if is_bc else year, month if year else 0, day)  # there is no year 0
    except ValueError:
        raise Invalid(f'date/time field value out of range: "{text}"') from None
    except OverflowError:
        raise Invalid(f'{_NAMES[kind]} out of range: "{text}"') from None


def _time(match: "re.Match[str]", text: str, kind: str) -> int:
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    micros = fraction_micros(match[4])
    if minutes > 59 or seconds > 60 or hours > 24 or (hours == 24 and (minutes or seconds or micros)):
        raise Invalid(f'date/time field value out of range: "{text}"')
    total = hours * HOUR + minutes * MINUTE + seconds * SECOND + micros
    if kind == "time" and total > DAY:
        raise Invalid(f'date/time field value out of range: "{text}"')
    return total


def fraction_micros(fraction: str | None) -> int:
    """`.5` as microseconds, rounded."""
    return round(float(fraction) * SECOND) if fraction else 0


def _offset(zone: str, text: str, kind: str) -> int:
    if not zone:
        return 0
    match = _ZONE.fullmatch(zone)
    if match is None:
        raise _wrong(text, kind)
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
    if hours > 15 or minutes > 59 or seconds > 59:
        raise Invalid(f'time zone displacement out of range: "{text}"')
    micros = hours * HOUR + minutes * MINUTE + seconds * SECOND
    return -micros if match[1] == "-" else micros


def date_in_range(days: int) -> int:
    """The same days, if Postgres has such a date."""
    if not _FIRST_DAY <= days <= _LAST_DATE:
        raise Invalid("date out of range")
    return days


def timestamp_in_range(micros: int) -> int:
    """The same microseconds, if Postgres has such a timestamp."""
    if not _FIRST_DAY * DAY <= micros < _TIMESTAMPS_END:
        raise Invalid("timestamp out of range")
    return micros


def write_date(days: int) -> str:
    """As Postgres writes it."""
    if days in (DATE_INFINITY, DATE_MINUS_INFINITY):
        return "infinity" if days > 0 else "-infinity"
    date, era = _date_and_era(days)
    return date + era


def write_time(micros: int) -> str:
    """As Postgres writes it."""
    seconds, fraction = divmod(micros, SECOND)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def write_timestamp(micros: int, kind: str) -> str:
    """As Postgres writes it, in UTC."""
    if micros in (INFINITY, MINUS_INFINITY):
        return "infinity" if micros > 0 else "-infinity"
    days, time = divmod(micros, DAY)
    date, era = _date_and_era(days)
    return f"{date} {write_time(time)}{'+00' if kind == 'timestamptz' else ''}{era}"


def _date_and_era(days: int) -> tuple[str, str]:
    year, month, day = date_of(days)
    return (f"{year:04d}-{month:02d}-{day:02d}", "") if year > 0 else (f"{1 - year:04d}-{month:02d}-{day:02d}", " BC")


def date_to_timestamp(days: int) -> int:
    """Midnight of that day."""
    if days in (DATE_INFINITY, DATE_MINUS_INFINITY):
        return INFINITY if days > 0 else MINUS_INFINITY
    if days * DAY >= _TIMESTAMPS_END:
        raise Invalid("date out of range for timestamp")
    return days * DAY


def timestamp_to_date(micros: int) -> int:
    """The day."""
    if micros in (INFINITY, MINUS_INFINITY):
        return DATE_INFINITY if micros > 0 else DATE_MINUS_INFINITY
    return micros // DAY


def timestamp_to_time(micros: int) -> int | None:
    """The time of day; NULL for the infinities."""
    return None if micros in (INFINITY, MINUS_INFINITY) else micros % DAY


def add_days(days: int, more: int) -> int:
    """`date + integer`."""
    return days if days in (DATE_INFINITY, DATE_MINUS_INFINITY) else date_in_range(days + more)


def days_between(left: int, right: int) -> int:
    """`date - date`."""
    if {left, right} & {DATE_INFINITY, DATE_MINUS_INFINITY}:
        raise Invalid("cannot subtract infinite dates")
    return left - right


def add_interval(micros: int, interval: Interval) -> int:
    """`timestamp + interval`: months first, where a day beyond the month becomes its last; then days, then time."""
    interval.must_be_finite()
    if micros in (INFINITY, MINUS_INFINITY):
        return micros
    if interval.months:
        days, time = divmod(micros, DAY)
        year, month, day = date_of(days)
        year, month = year + (month - 1 + interval.months) // 12, (month - 1 + interval.months) % 12 + 1
        following = days_of(year + month // 12, month % 12 + 1, 1)
        micros = min(days_of(year, month, 1) + day - 1, following - 1) * DAY + time
        timestamp_in_range(micros)
    micros = timestamp_in_range(micros + interval.days * DAY)
    return timestamp_in_range(micros + interval.micros)


def between(left: int, right: int) -> Interval:
    """`timestamp - timestamp`: whole days and the rest."""
    if {left, right} & {INFINITY, MINUS_INFINITY}:
        raise Invalid("cannot subtract infinite timestamps")
    micros = left - right
    if not -(2**63) <= micros < 2**63:
        raise Invalid("interval out of range")
    days = abs(micros) // DAY
    days = -days if micros < 0 else days
    return Interval(0, days, micros - days * DAY)


def round_micros(micros: int, typmod: int) -> int:
    """To so many digits of a second; halves away from zero."""
    if not 0 <= typmod < 6 or micros in (INFINITY, MINUS_INFINITY):
        return micros
    unit: int = 10 ** (6 - typmod)
    rounded = (abs(micros) + unit // 2) // unit * unit
    return -rounded if micros < 0 else rounded
