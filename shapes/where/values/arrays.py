"""Arrays: read, written, compared, taken apart. Value number of dimensions, any first index, NULL elements."""

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from shapes.where.values.value import Invalid, Value

_DIMENSIONS_MAX: Final = 6
_ELEMENTS_MAX: Final = 134217727
_BOUNDS: Final = re.compile(r"\s*((?:\[[+-]?\d{1,9}(?::[+-]?\d{1,9})?\])+)\s*=", re.ASCII)
_BOUND: Final = re.compile(r"\[([+-]?\d+)(?::([+-]?\d+))?\]", re.ASCII)
_TOKEN: Final = re.compile(r'\s*(?:([{},])|"((?:[^"\\]|\\.)*)"|((?:[^"\\{},]|\\.)+))', re.DOTALL)
_PLAIN: Final = re.compile(r'[^"\\{},\s]+', re.ASCII)


@dataclass(frozen=True, slots=True)
class Array:
    """Elements in order, the last dimension running fastest; no dimensions when empty."""

    items: tuple[Value, ...]
    dims: tuple[int, ...]
    lower: tuple[int, ...]


EMPTY: Final = Array((), (), ())


def one_dimension(items: tuple[Value, ...]) -> Array:
    """A plain list."""
    return Array(items, (len(items),), (1,)) if items else EMPTY


def read_array(text: str, read_element: Callable[[str], Value]) -> Array:
    """An array literal, as Postgres writes it and somewhat beyond."""
    bounds: list[tuple[str, str]] = []
    if match := _BOUNDS.match(text):
        bounds = _BOUND.findall(match[1])
    dims, items = _Reader(text, match.end() if match else 0, read_element).read()
    if not bounds:
        return Array(tuple(items), dims, (1,) * len(dims))
    lower = tuple(int(low) if high else 1 for low, high in bounds)
    if dims != tuple(int(high or low) - below + 1 for (low, high), below in zip(bounds, lower, strict=True)):
        raise Invalid(f'malformed array literal: "{text}"')
    return Array(tuple(items), dims, lower)


class _Reader:
    """Walks nested braces without recursion, so that a hostile text costs no stack."""

    def __init__(self, text: str, position: int, read_element: Callable[[str], Value]) -> None:
        self._text = text
        self._position = position
        self._read_element = read_element
        self._items: list[Value] = []

    def read(self) -> tuple[tuple[int, ...], list[Value]]:
        counts: list[int] = []  # in each open brace
        sizes: list[int | None] = []  # of each dimension, once a brace of it was closed
        leaf_depth = 0
        expects_value = True
        for delimiter, element in self._tokens():
            if delimiter == "{":
                self._must(
                    expects_value and len(counts) < _DIMENSIONS_MAX and (not leaf_depth or len(counts) < leaf_depth)
                )
                counts.append(0)
                sizes += [None] * (len(counts) - len(sizes))
            elif delimiter == ",":
                self._must(not expects_value and bool(counts))
                expects_value = True
            elif delimiter == "}":
                self._must(bool(counts) and (not expects_value or counts[-1] == 0))
                count = counts.pop()
                self._must(sizes[len(counts)] in (None, count) and (not expects_value or not self._items))
                sizes[len(counts)] = count
                expects_value = False
                if counts:
                    counts[-1] += 1
                else:
                    return self._finish(sizes)
            else:
                self._must(expects_value and bool(counts) and (not leaf_depth or leaf_depth == len(counts)))
                leaf_depth = len(counts)
                counts[-1] += 1
                self._items.append(element)
                expects_value = False
        raise self._malformed()

    def _finish(self, sizes: list[int | None]) -> tuple[tuple[int, ...], list[Value]]:
        self._must(not self._text[self._position :].strip())
        if not self._items:
            return (), []
        dims = tuple(size or 0 for size in sizes)
        self._must(math.prod(dims) == len(self._items))
        return dims, self._items

    def _tokens(self) -> Iterator[tuple[str | None, Value]]:
        while match := _TOKEN.match(self._text, self._position):
            self._position = match.end()
            delimiter, quoted, plain = match.groups()
            if delimiter:
                yield delimiter, None
            elif quoted is not None:
                yield None, self._read_element(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
            else:
                # Blanks around a bare element do not count; escaped ones do.
                bare = plain.rstrip()
                if (len(bare) - len(bare.rstrip("\\"))) % 2:
                    bare = plain[: len(bare) + 1]
                self._must(bool(bare))
                is_null = bare.upper() == "NULL"
                yield None, None if is_null else self._read_element(re.sub(r"\\(.)", r"\1", bare, flags=re.DOTALL))

    def _must(self, fits: bool) -> None:  # noqa: FBT001 - reads like an assertion
        if not fits:
            raise self._malformed()

    def _malformed(self) -> Invalid:
        return Invalid(f'malformed array literal: "{self._text}"')


def write_array(array: Array, write_element: Callable[[Value], str]) -> str:
    """As Postgres writes it."""
    if not array.items:
        return "{}"
    prefix = ""
    if any(low != 1 for low in array.lower):
        prefix = "".join(f"[{low}:{low + size - 1}]" for low, size in zip(array.lower, array.dims, strict=True)) + "="
    texts = ["NULL" if item is None else _quoted(write_element(item)) for item in array.items]
    for size in reversed(array.dims):
        texts = ["{" + ",".join(texts[start : start + size]) + "}" for start in range(0, len(texts), size)]
    return prefix + texts[0]


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.upper() != "NULL":
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def array_key(array: Array, element_key: Callable[[Value], Value]) -> tuple[Value, ...]:
    """Orders arrays as Postgres does: elements first, NULL above all, then sizes."""
    items = tuple((1,) if item is None else (0, element_key(item)) for item in array.items)
    return items, len(items), len(array.dims), array.dims, array.lower


def concatenate(left: Array | None, right: Array | None) -> Array | None:
    """`||` of two arrays, or of an array and an element of more dimensions' arrays."""
    if left is None or right is None:
        return right if left is None else left
    if not left.items or not right.items:
        return left if left.items or not right.items else right
    items = left.items + right.items
    gap = len(left.dims) - len(right.dims)
    left_shape, right_shape = (list(zip(side.dims, side.lower, strict=True)) for side in (left, right))
    if gap == 0 and left_shape[1:] == right_shape[1:]:
        return Array(items, (left.dims[0] + right.dims[0], *left.dims[1:]), left.lower)
    if gap == -1 and left_shape == right_shape[1:]:
        return Array(items, (right.dims[0] + 1, *right.dims[1:]), right.lower)
    if gap == 1 and right_shape == left_shape[1:]:
        return Array(items, (left.dims[0] + 1, *left.dims[1:]), left.lower)
    raise Invalid("cannot concatenate incompatible arrays")


def append(array: Array | None, element: Value) -> Array:
    """The array with one more element at its end."""
    return _with_element(array, lambda items: (*items, element))


def prepend(element: Value, array: Array | None) -> Array:
    """The array with one more element at its start, its first index as before."""
    return _with_element(array, lambda items: (element, *items))


def _with_element(array: Array | None, change: Callable[[tuple[Value, ...]], tuple[Value, ...]]) -> Array:
    if array is None or not array.dims:
        return one_dimension(change(()))
    if len(array.dims) > 1:
        raise Invalid("argument must be empty or one-dimensional array")
    return Array(change(array.items), (array.dims[0] + 1,), array.lower)


def stack(parts: list[Array | None]) -> Array:
    """`ARRAY[..]` of arrays: one dimension more."""
    arrays = [part for part in parts if part is not None and part.items]
    if not arrays:
        return EMPTY
    if len(arrays) != len(parts) or len({(part.dims, part.lower) for part in arrays}) > 1:
        raise Invalid("multidimensional arrays must have array expressions with matching dimensions")
    if len(arrays[0].dims) == _DIMENSIONS_MAX:
        raise Invalid(f"number of array dimensions exceeds the maximum allowed ({_DIMENSIONS_MAX})")
    first = arrays[0]
    items = tuple(itertools.chain.from_iterable(part.items for part in arrays))
    return Array(items, (len(arrays), *first.dims), (1, *first.lower))


def element_at(array: Array, indices: list[int]) -> Value:
    """One element, or None outside."""
    if len(indices) != len(array.dims):
        return None
    place = 0
    for index, size, low in zip(indices, array.dims, array.lower, strict=True):
        if not low <= index < low + size:
            return None
        place = place * size + index - low
    return array.items[place]


def slice_of(array: Array, bounds: list[tuple[int | None, int | None]]) -> Array:
    """A part, with first indexes 1; empty outside."""
    if not array.dims or len(bounds) > len(array.dims):
        return EMPTY
    ranges = []
    wanted: list[tuple[int | None, int | None]] = bounds + [(None, None)] * (len(array.dims) - len(bounds))
    for (start, stop), size, low in zip(wanted, array.dims, array.lower, strict=True):
        first = low if start is None else max(start, low)
        last = low + size - 1 if stop is None else min(stop, low + size - 1)
        if first > last:
            return EMPTY
        ranges.append(range(first - low, last - low + 1))
    strides = [math.prod(array.dims[depth + 1 :]) for depth in range(len(array.dims))]
    places = (sum(i * s for i, s in zip(at, strides, strict=True)) for at in itertools.product(*ranges))
    dims = tuple(len(taken) for taken in ranges)
    return Array(tuple(array.items[place] for place in places), dims, (1,) * len(dims))
