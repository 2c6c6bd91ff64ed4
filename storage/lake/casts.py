"""Text of Postgres to values of the lake, a column at a time. Pure.

A value that its type cannot hold is *quarantined*: it becomes NULL, and its text and the reason are kept beside the
row. Nothing stops for it, and no other value changes.

Invariants:
    len(values) == len(texts); NULL stays NULL and is never quarantined
    a value that is not quarantined stands for exactly what its text says
    casting some of the rows gives the same as casting all and taking those
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.lake.array_text import split_arrays
from storage.lake.record_text import split_records
from storage.lake.types import INTERVAL, LakeType, Reading

Mask = npt.NDArray[np.bool_]

_DIGITS: Final = np.full(256, 255, np.uint8)
for _value, _digit in enumerate(b"0123456789abcdef"):
    _DIGITS[_digit] = _value
_HEX: Final = r"^\\x([0-9a-f][0-9a-f])*$"

_NUMBER: Final = r"[+-]?[0-9]+"
_INTERVAL: Final = (
    rf"^P(?:(?P<years>{_NUMBER})Y)?(?:(?P<months>{_NUMBER})M)?(?:(?P<days>{_NUMBER})D)?"
    rf"(?:T(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?(?:(?P<seconds>{_NUMBER}(?:\.[0-9]+)?)S)?)?$"
)
_EMPTY: Final = "empty"
_SECONDS: Final = pa.decimal128(22, 6)


@dataclass(frozen=True, slots=True)
class Cast:
    """A column's values; NULL where the text is, and where a value is quarantined."""

    values: pa.Array
    quarantined: Mask

    @property
    def count(self) -> int:
        """How many values are quarantined."""
        return int(self.quarantined.sum())


def cast(texts: pa.Array, kind: LakeType) -> Cast:
    """A column of text (`large_string`) as the type."""
    return _CASTS[kind.reading](texts, kind)


_REASONS: Final = (
    ("infinite", re.compile(r"[+-]?infinity", re.IGNORECASE)),
    ("not_a_number", re.compile(r"nan", re.IGNORECASE)),
    ("before_christ", re.compile(r".* BC", re.DOTALL)),
    ("year_above_9999", re.compile(r"\d{5,}-\d\d-\d\d.*", re.DOTALL)),
    ("dimensions", re.compile(r"(\[-?\d+:-?\d+\]|\{\{).*", re.DOTALL)),
    ("element", re.compile(r"[{(\[].*", re.DOTALL)),
)


def reason_of(text: str) -> str:
    """Why a quarantined value does not fit its type."""
    return next((reason for reason, pattern in _REASONS if pattern.fullmatch(text)), "unreadable")


def _text(texts: pa.Array, kind: LakeType) -> Cast:
    return Cast(texts.cast(kind.arrow), np.zeros(len(texts), np.bool_))


def _arrow(texts: pa.Array, kind: LakeType) -> Cast:
    return _isolating(texts, kind.arrow, lambda some: some.cast(kind.arrow))


def _bool(texts: pa.Array, _: LakeType) -> Cast:
    is_true, is_false = pc.equal(texts, "t"), pc.equal(texts, "f")
    is_bad = pc.invert(pc.or_(is_true, is_false)).fill_null(False).to_numpy(zero_copy_only=False)
    return _without(is_true, is_bad)


def _bytes(texts: pa.Array, kind: LakeType) -> Cast:
    """Hexadecimal digits, those of all values at once."""
    is_good = pc.match_substring_regex(texts, _HEX)
    is_bad = pc.invert(is_good).fill_null(False).to_numpy(zero_copy_only=False)
    digits = pc.utf8_slice_codeunits(pc.if_else(is_good, texts, None).fill_null("\\x"), 2)
    lengths = pc.binary_length(digits).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(lengths)))
    start = int(np.frombuffer(digits.buffers()[1], np.int64)[digits.offset])
    data = digits.buffers()[2]
    halves = _DIGITS[np.frombuffer(b"" if data is None else data, np.uint8)[start : start + int(ends[-1])]]
    content = (halves[0::2] << 4) | halves[1::2]
    values = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(texts), [None, pa.py_buffer((ends // 2).astype(np.int64)), pa.py_buffer(content)]
    )
    return Cast(pc.if_else(is_good, values, None).cast(kind.arrow), is_bad)


def _interval(texts: pa.Array, kind: LakeType) -> Cast:
    return _isolating(texts, kind.arrow, _intervals)


def _intervals(texts: pa.Array) -> pa.Array:
    """ISO 8601 as Postgres writes it; raises `ArrowInvalid` if one of them is not."""
    parts = pc.extract_regex(texts, _INTERVAL)
    if parts.null_count > texts.null_count:
        raise pa.ArrowInvalid("not an interval")
    found = dict(zip([field.name for field in parts.type], parts.flatten(), strict=True))

    def number(name: str) -> pa.Array:
        values = pc.if_else(pc.equal(found[name], ""), "0", found[name])
        return pc.replace_substring(values, "+", "").cast(pa.int64())

    seconds = pc.replace_substring(pc.if_else(pc.equal(found["seconds"], ""), "0", found["seconds"]), "+", "")
    exact = pc.multiply_checked(seconds.cast(_SECONDS), pa.scalar(1_000_000, pa.decimal128(7, 0))).cast(pa.int64())
    minutes = pc.add_checked(pc.multiply_checked(number("hours"), 60), number("minutes"))
    months = pc.add_checked(pc.multiply_checked(number("years"), 12), number("months")).cast(pa.int32())
    numbers = [
        months,
        number("days").cast(pa.int32()),
        pc.add_checked(pc.multiply_checked(minutes, 60_000_000), exact),
    ]
    is_null = texts.is_null()
    return pa.StructArray.from_arrays(numbers, fields=list(INTERVAL), mask=is_null if is_null.true_count else None)


def _array(texts: pa.Array, kind: LakeType) -> Cast:
    lists, is_bad = split_arrays(texts)
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    elements = cast(pc.list_flatten(lists), kind.parts[0])
    if elements.count:
        parents = np.repeat(np.arange(len(texts)), lengths)
        is_bad[parents[elements.quarantined]] = True
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    is_null = pa.array(is_bad | lists.is_null().to_numpy(zero_copy_only=False))
    mask = is_null if is_null.true_count else None
    return Cast(pa.ListArray.from_arrays(pa.array(offsets), elements.values, type=kind.arrow, mask=mask), is_bad)


def _range(texts: pa.Array, kind: LakeType) -> Cast:
    """Its bounds; which of them belong to it is told in two brackets, or by the word `empty`."""
    is_empty = pc.equal(texts, _EMPTY).fill_null(False)
    brackets = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(texts, 0, 1), pc.utf8_slice_codeunits(texts, -1), pa.scalar("", texts.type)
    )
    is_range = pc.match_substring_regex(brackets, r"^[\[(][\])]$")
    inner = pc.if_else(is_empty, ",", pc.if_else(is_range, pc.utf8_slice_codeunits(texts, 1, -1), "?"))
    words = pc.if_else(is_empty, _EMPTY, brackets).cast(pa.string())
    return _struct(texts, inner, kind, [words])


def _composite(texts: pa.Array, kind: LakeType) -> Cast:
    is_record = pc.and_(pc.starts_with(texts, "("), pc.ends_with(texts, ")"))
    if len(kind.parts) == 1:  # one field without quotes has no comma, so what has none is still one
        return _struct(texts, pc.if_else(is_record, pc.utf8_slice_codeunits(texts, 1, -1), ","), kind, [])
    return _struct(texts, pc.if_else(is_record, pc.utf8_slice_codeunits(texts, 1, -1), "?"), kind, [])


def _struct(texts: pa.Array, inner: pa.Array, kind: LakeType, more: list[pa.Array]) -> Cast:
    """The fields of each value, cast; one that does not fit quarantines the whole."""
    columns, is_bad = split_records(inner, len(kind.parts))
    values = []
    for column, part in zip(columns, kind.parts, strict=True):
        done = cast(column, part)
        is_bad |= done.quarantined
        values.append(done.values)
    is_bad &= texts.is_valid().to_numpy(zero_copy_only=False)
    is_null = pa.array(is_bad | texts.is_null().to_numpy(zero_copy_only=False))
    mask = is_null if is_null.true_count else None
    return Cast(pa.StructArray.from_arrays([*values, *more], fields=list(kind.arrow), mask=mask), is_bad)


_CASTS: Final[dict[Reading, Callable[[pa.Array, LakeType], Cast]]] = {
    Reading.TEXT: _text,
    Reading.ARROW: _arrow,
    Reading.BOOL: _bool,
    Reading.BYTES: _bytes,
    Reading.INTERVAL: _interval,
    Reading.ARRAY: _array,
    Reading.RANGE: _range,
    Reading.COMPOSITE: _composite,
}


def _isolating(texts: pa.Array, kind: pa.DataType, work: Callable[[pa.Array], pa.Array]) -> Cast:
    """All at once; if that fails, each distinct text once, by halves, so that a few bad ones cost little."""
    try:
        return Cast(work(texts), np.zeros(len(texts), np.bool_))
    except pa.ArrowInvalid:
        encoded = texts.dictionary_encode()
    values, is_bad_text = _by_halves(encoded.dictionary, kind, work)
    codes = encoded.indices
    is_bad = is_bad_text[codes.fill_null(0).to_numpy()] & codes.is_valid().to_numpy(zero_copy_only=False)
    return Cast(values.take(codes), is_bad)


def _by_halves(texts: pa.Array, kind: pa.DataType, work: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, Mask]:
    """What can be read of the texts, and a mask of those that cannot."""
    good: list[pa.Array] = []
    is_bad = np.zeros(len(texts), np.bool_)
    waiting = [(0, len(texts))]
    while waiting:
        start, stop = waiting.pop()
        try:
            good.append(work(texts.slice(start, stop - start)))
        except pa.ArrowInvalid:
            if stop - start == 1:
                good.append(pa.nulls(1, kind))
                is_bad[start] = True
            else:
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]  # the first half is taken first
    return pa.concat_arrays(good), is_bad


def _without(values: pa.Array, is_bad: Mask) -> Cast:
    return Cast(pc.if_else(pa.array(~is_bad), values, None) if is_bad.any() else values, is_bad)
