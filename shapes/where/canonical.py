"""Keys for equality: two texts of a type are equal in Postgres exactly if their keys are.

The texts are those that Postgres sends (`DateStyle` ISO, `TimeZone` UTC, `IntervalStyle` iso_8601,
`extra_float_digits` 1), so for most types they are their own keys. A text that is no value of its type keeps itself as
its key. NULL has none.
"""

from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from shapes.where.tree import Constant
from shapes.where.types import FLOATS, Type
from shapes.where.values.io import reader, sort_key, writer
from shapes.where.values.numbers import write_numeric
from shapes.where.values.value import Invalid, Value

# One value has one text, as Postgres writes them; in arrays too.
_WRITTEN_ALIKE: Final = frozenset(
    {"int2", "int4", "int8", "text", "varchar", "name", "uuid", "date", "time", "timestamp", "timestamptz"}
)
_FAMILIES: Final = {"int2": "int", "int4": "int", "int8": "int", "varchar": "text", "name": "text"}


def has_keys(kind: Type) -> bool:
    """Whether equality of this type can be told by keys: all but those that we cannot calculate with."""
    return kind.category != "?"


def canonical(kind: Type, texts: pa.Array) -> pa.Array:
    """The keys of a column's texts, as an array of strings."""
    name = kind.name
    if name in _WRITTEN_ALIKE or kind.category == "E":
        return texts
    if name == "bool":
        return pc.utf8_slice_codeunits(texts, 0, 1)  # a stream says t, a cast to text says true
    if name == "bpchar":
        return pc.utf8_rtrim(texts, characters=" ")
    if name in FLOATS:
        return pc.if_else(pc.equal(texts, "-0"), "0", texts)
    if name == "numeric":
        return _numeric_keys(texts)
    if kind.element is not None and kind.element.name in _WRITTEN_ALIKE:
        return texts
    return _by_distinct_value(kind, texts)


def canonical_text(kind: Type, text: str) -> str:
    """The key of one text."""
    key: str = canonical(kind, pa.array([text], pa.string()))[0].as_py()
    return key


def constant_key(kind: Type, constant: Constant) -> str | None:
    """The key that a column of this type has where it equals the constant.

    None where keys do not tell: for NULL, and where the types differ by more than their width.
    """
    if constant.value is None or not has_keys(kind) or _family(kind) != _family(constant.type):
        return None
    return canonical_text(constant.type, writer(constant.type)(constant.value))


def _family(kind: Type) -> str:
    return _FAMILIES.get(kind.name, kind.name)


def _numeric_keys(texts: pa.Array) -> pa.Array:
    """Without zeros at the end of a fraction."""
    has_fraction = pc.match_substring(texts, ".")
    if not pc.any(has_fraction).as_py():
        return texts
    return pc.if_else(has_fraction, pc.utf8_rtrim(pc.utf8_rtrim(texts, characters="0"), characters="."), texts)


def _by_distinct_value(kind: Type, texts: pa.Array) -> pa.Array:
    """Intervals, and arrays whose elements have several texts: each distinct text is read once."""
    read, key = reader(kind), sort_key(kind)

    def key_of(text: str | None) -> str | None:
        try:
            return None if text is None else repr(_plain(key(read(text))))
        except Invalid:
            return text

    encoded = texts.dictionary_encode()
    keys = pa.array([key_of(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return keys.take(encoded.indices)


def element_keys(kind: Type, texts: pa.Array) -> pa.Array:
    """For a column of arrays: the distinct keys of each array's elements, NULLs left out, as an array of lists.

    NULL for a NULL array, and for a text that is no array.
    """
    assert kind.element is not None
    read, write, element = reader(kind), writer(kind.element), kind.element
    encoded = texts.dictionary_encode()
    found: list[list[str] | None] = []
    for text in encoded.dictionary.to_pylist():
        try:
            items = {write(item) for item in read(text).items if item is not None}
        except Invalid:
            found.append(None)
            continue
        found.append(sorted(set(canonical(element, pa.array(list(items), pa.string())).to_pylist())))
    return pa.array(found, pa.list_(pa.string())).take(encoded.indices)


def _plain(value: Value) -> Value:
    """A sort key whose text is the same wherever it is equal."""
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    if isinstance(value, Decimal):
        text = write_numeric(value)
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, float):
        return value + 0.0  # no negative zero
    return value
