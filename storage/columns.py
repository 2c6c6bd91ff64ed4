"""Rows of a log, taken apart into flat columns, and results put together from them: what folding is made of.

Text is held with 64-bit offsets here, since batches put end to end may pass the 2 GiB where Arrow's string type ends;
what leaves is `string` again, in batches of at most about `COMBINE_BYTES_MAX`.

Invariants:
    every column of a `Columns` has one entry a row, in the order of the batches
    a column is sent in a row unless its bit is set in the row's bitmap; NULL and missing bits are not set
    two rows have the same key code exactly if their key columns are equal one by one; -1 is a key that is not known
    what `assemble` returns depends on the picked values alone, not on how the input was cut into batches
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRows
from storage.limits import COMBINE_BYTES_MAX, ROW_WIRE_OVERHEAD_BYTES
from storage.offset import LogOffset
from storage.rows import ABSENT, KIND, NEW, OLD, OP, TX, XID, XID_FIELD, Integers, Kind, Unsigned, check_schema, column

Mask = npt.NDArray[np.bool_]
Kinds = npt.NDArray[np.uint8]

_KNOWN: Final = {TX, OP, KIND, XID, ABSENT, NEW, OLD}


class Columns:
    """The rows of some batches; `new` is the values' columns, each NULL where the whole struct is."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        _check(batches)
        self._batches = batches
        self._values: dict[str, list[list[pa.Array]]] = {}
        """The columns of `new` and `old` in each batch, once they were asked for."""
        self.names: list[str] = [field.name for field in batches[0].schema.field(NEW).type]
        self.tx: Unsigned = np.concatenate([column(batch, TX) for batch in batches])
        self.op: Unsigned = np.concatenate([column(batch, OP) for batch in batches])
        self.kind: Kinds = np.concatenate([column(batch, KIND) for batch in batches])
        self.new = [self.text(NEW, index) for index in range(len(self.names))]
        self.absent = Bitmaps(_joined(self._chunks(ABSENT, pa.binary()), pa.large_binary()))

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.tx)

    @property
    def xid(self) -> pa.Array:
        """Who the transactions were; NULL where that is not known."""
        return _joined(self._chunks(XID, XID_FIELD.type), XID_FIELD.type)

    @property
    def has_old(self) -> bool:
        """Whether any batch has the values before the change."""
        return any(OLD in batch.schema.names for batch in self._batches)

    def offset(self, row: int) -> LogOffset:
        """The offset of one row."""
        return LogOffset(int(self.tx[row]), int(self.op[row]))

    def text(self, struct: str, index: int) -> pa.Array:
        """One column of `new` or `old`; NULL also where the struct is, or the batch has none."""
        if struct not in self._values:
            chunks = self._chunks(struct, self._batches[0].schema.field(NEW).type)
            # Once for all columns: one of them, with the struct's NULLs, costs Arrow as much as all.
            self._values[struct] = [chunk.flatten() for chunk in chunks]
        return _joined((values[index] for values in self._values[struct]), pa.large_string())

    def is_valid(self, struct: str) -> Mask:
        """In which rows `new` or `old` is not NULL as a whole."""
        chunks = self._chunks(struct, self._batches[0].schema.field(NEW).type)
        return np.concatenate([chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks])

    def _chunks(self, name: str, kind: pa.DataType) -> Iterator[pa.Array]:
        """A column of each batch; NULLs for a batch that has no such column."""
        for batch in self._batches:
            index = batch.schema.get_field_index(name)
            yield batch.column(index) if index >= 0 else pa.nulls(batch.num_rows, kind)

    def key_codes(self, key_columns: Sequence[str]) -> Integers:
        """A number for each row that stands for its key, numbered by first appearance; -1 where the key is not known.

        A value that `new` does not have (a DELETE may carry it in `old` alone; a long one may not have been sent) is
        taken from `old`: no change of a row changes its key. With NULL in a key column, the key is not known.
        """
        codes = np.zeros(self.count, dtype=np.int64)
        for name in key_columns:
            if name not in self.names:
                raise InvalidRows(f"the key column {name!r} is not among the values", found=self.names)
            index = self.names.index(name)
            values = self.new[index]
            if len(unsent := self.absent.rows_without(index)):
                values = Picked(values, _except(np.arange(self.count), unsent)).taken()
            if self.has_old and values.null_count:
                values = pc.coalesce(values, self.text(OLD, index))
            one = _codes(values)
            # Two columns make one number and never one text: no separator is safe. Numbered anew each time, both
            # stay below 2^31 and their product below 2^62.
            both = np.where((codes < 0) | (one < 0), -1, codes * (one.max(initial=0) + 1) + one)
            codes = _codes(pa.array(both, mask=both < 0))
        return codes


class Bitmaps:
    """The column `absent`: which columns a row was sent without."""

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        offsets = np.frombuffer(values.buffers()[1], dtype=np.int64)[values.offset : values.offset + len(values) + 1]
        lengths = np.where(values.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
        # Most rows have everything, so the few with a bitmap are looked at and no others.
        self._rows: Integers = np.flatnonzero(lengths)
        self._lengths = lengths[self._rows]
        self._starts = offsets[self._rows]
        data = values.buffers()[2]
        self._data = np.frombuffer(data if data is not None else b"", dtype=np.uint8)

    def rows_without(self, column_index: int) -> Integers:
        """The rows in which this column was not sent, ascending."""
        byte, bit = divmod(column_index, 8)
        reaches = self._lengths > byte
        rows = self._rows[reaches]
        is_set: Mask = self._data[self._starts[reaches] + byte] & (1 << bit) != 0
        return rows[is_set]


def encode_bitmaps(absences: Iterable[Mask], count: int) -> pa.Array:
    """The bitmaps of `count` rows from a mask for each column; NULL for a row that has everything."""
    masks = list(absences)
    size = -(-len(masks) // 8)
    packed = np.zeros((count, size), dtype=np.uint8)
    for index, mask in enumerate(masks):
        packed[:, index // 8] |= mask.astype(np.uint8) << (index % 8)
    bitmaps = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), count, [None, pa.py_buffer(packed)])
    return pc.if_else(pa.array(packed.any(axis=1)), bitmaps.cast(pa.large_binary()), None)


@dataclass(frozen=True, slots=True)
class Picked:
    """A column of a result by reference: its value i is `values[source[i]]`, and NULL where `source[i]` is -1."""

    values: pa.Array
    source: Integers

    def taken(self, start: int = 0, stop: int | None = None) -> pa.Array:
        """The values of some rows of the result."""
        source = self.source[start:stop]
        missing = source < 0
        return self.values.take(pa.array(source, mask=missing if missing.any() else None))

    def part(self, start: int, stop: int, kind: pa.DataType) -> pa.Array:
        """The same with the type of a stored column."""
        return self.taken(start, stop).cast(kind)

    def sizes(self) -> Integers:
        """The bytes of each value of the result; those of a number are in what every row costs."""
        if pa.types.is_integer(self.values.type):
            return np.zeros(len(self.source), np.int64)
        lengths: Integers = pc.binary_length(self.values).fill_null(0).to_numpy(zero_copy_only=False)
        sizes: Integers = np.where(self.source < 0, 0, lengths[self.source])
        return sizes


@dataclass(frozen=True, slots=True)
class PickedStruct:
    """A struct column of a result, and in which of its rows it is not NULL as a whole."""

    columns: list[Picked]
    is_valid: Mask

    def part(self, start: int, stop: int, kind: pa.DataType) -> pa.Array:
        """Some rows of it as a stored column."""
        children = [picked.part(start, stop, field.type) for picked, field in zip(self.columns, kind, strict=True)]
        is_null = ~self.is_valid[start:stop]
        mask = pa.array(is_null) if is_null.any() else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)

    def sizes(self) -> Integers:
        """The bytes of each row's values."""
        sizes = np.zeros(len(self.is_valid), dtype=np.int64)
        for picked in self.columns:
            sizes += picked.sizes()
        return sizes


def assemble(
    schema: pa.Schema, numbers: Mapping[str, npt.NDArray[Any]], picked: Mapping[str, Picked | PickedStruct]
) -> list[pa.RecordBatch]:
    """The result's rows as batches of `schema`: the numbers as they are, the picked columns copied together."""
    sizes = np.full(len(numbers[TX]), ROW_WIRE_OVERHEAD_BYTES, dtype=np.int64)
    for values in picked.values():
        sizes += values.sizes()
    batches = []
    for start, stop in spans(sizes, COMBINE_BYTES_MAX):
        arrays = [
            pa.array(numbers[field.name][start:stop])
            if field.name in numbers
            else picked[field.name].part(start, stop, field.type)
            for field in schema
        ]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return batches


def spans(sizes: Integers, size_max: int) -> Iterator[tuple[int, int]]:
    """Cut rows where their cumulated size passes a multiple of `size_max`; the row that passes it ends its span."""
    begins = np.cumsum(sizes) - sizes
    starts = np.flatnonzero(np.diff(begins // max(1, size_max), prepend=-1)).tolist()
    return zip(starts, [*starts[1:], len(sizes)], strict=False)


def _check(batches: Sequence[pa.RecordBatch]) -> None:
    """Raise `InvalidRows` for batches whose rows cannot be put end to end and taken apart."""
    values_type = None
    for batch in batches:
        check_schema(batch.schema)
        values_type = values_type or batch.schema.field(NEW).type
        if unknown := set(batch.schema.names) - _KNOWN:
            raise InvalidRows("there are columns that a log does not have", found=sorted(unknown))
        wanted = {NEW: values_type, OLD: values_type, ABSENT: pa.binary()}
        for field in batch.schema:
            if field.type != wanted.get(field.name, field.type):
                raise InvalidRows(f"the column {field.name!r} is {field.type}, not {wanted[field.name]}")
        if any(batch.column(name).null_count for name in (TX, OP, KIND)):
            raise InvalidRows("a row has no offset or no kind")
        kind = column(batch, KIND)
        if kind.min(initial=Kind.INSERT) < Kind.INSERT or kind.max(initial=Kind.INSERT) > Kind.TRUNCATE:
            raise InvalidRows("a row has an unknown kind", found=np.unique(kind).tolist())
    for field in values_type or ():
        if field.type != pa.string():
            raise InvalidRows(f"values are text, and {field.name!r} is {field.type}")


def _joined(chunks: Iterable[pa.Array], kind: pa.DataType) -> pa.Array:
    """The chunks as one array; a single one is not copied."""
    arrays = [chunk.cast(kind) for chunk in chunks]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _codes(values: pa.Array) -> Integers:
    """The place of each value in a dictionary of them, -1 for NULL."""
    codes: Integers = values.dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64)
    return codes


def _except(rows: Integers, missing: Integers) -> Integers:
    rows[missing] = -1
    return rows
