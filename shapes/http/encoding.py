"""Rows of a log as the protocol's JSON messages. Pure.

Whole columns at a time: each column's texts are escaped where they have to be, all are joined to one text a row, and
since the texts of an Arrow column lie one behind the other, the column's bytes are the body. A few rows go the short
way, one by one (`encoding_by_hand`).

Invariants:
    the messages are a function of the rows, their neighbours and the shape alone, so one encoding serves all readers
    both ways make the same messages
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from shapes.http.encoding_by_hand import encode_by_hand
from shapes.http.json_text import NOTHING, Text, constant, escaped, joined, json_text, members, quoted, spans_of
from shapes.http.limits import ROWS_BY_HAND_MAX
from shapes.http.row_format import Neighbours, RowFormat, Style
from storage.columns import Bitmaps
from storage.rows import ABSENT, KIND, NEW, OLD, OP, TX, XID, Flags, Kind, Unsigned, column

_LAST: Final = ',"last":true'
_INSERT, _UPDATE, _DELETE = map(int, (Kind.INSERT, Kind.UPDATE, Kind.DELETE))


def encode(form: RowFormat, rows: pa.RecordBatch, style: Style, around: Neighbours = Neighbours()) -> bytes:  # noqa: B008
    """The messages of a batch, each with what `style` puts before and after it."""
    batches = [batch for batch in (around.before, rows, around.after) if batch is not None]
    start = around.before.num_rows if around.before is not None else 0
    whole = as_one(batches)
    ends_whole = around.after is None and around.is_end
    if whole.num_rows <= ROWS_BY_HAND_MAX:
        messages = encode_by_hand(form, whole, ends_whole=ends_whole)[start : start + rows.num_rows]
        before, after = style.before.encode(), style.after.encode()
        return b"".join(before + message + after for message in messages)
    lines = _Rows(form, whole).lines(style, ends_whole=ends_whole)
    return _bytes_of(lines.slice(start, rows.num_rows))


def as_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one log, of which some may lack columns that others have: those are NULL there."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0].schema
    if all(batch.schema.equals(first) for batch in batches):
        return pa.concat_batches(batches)
    fields = {field.name: field for batch in batches for field in batch.schema}
    schema = pa.schema([field.with_nullable(True) for field in fields.values()])
    return pa.concat_batches([_widened(batch, schema) for batch in batches])


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    names = batch.schema.names
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bytes_of(lines: pa.Array) -> bytes:
    """The texts of a column, one behind the other."""
    start, stop = spans_of(lines)
    return memoryview(lines.buffers()[2])[start:stop].tobytes() if stop > start else b""


class _Rows:
    """One batch, in columns of text."""

    def __init__(self, form: RowFormat, rows: pa.RecordBatch) -> None:
        self._form = form
        self._rows = rows
        self._count = rows.num_rows
        self._tx, self._op, self._kind = (column(rows, name) for name in (TX, OP, KIND))
        self._new = dict(zip(form.columns, rows.column(NEW).flatten(), strict=True))
        self._escaped = {name: escaped(values) for name, values in self._new.items()}

    def lines(self, style: Style, *, ends_whole: bool) -> pa.Array:
        """One text for each row."""
        keys = self._keys()
        parts: list[Text] = [f'{style.before}{{"key":"', keys, '","value":{', self._values()]
        old = self._old_values()
        parts += ["}", old] if old is not None else ["}"]
        parts += [*self._headers(keys, ends_whole=ends_whole), "}}" + style.after]
        return joined(parts)

    def _keys(self) -> pa.Array:
        """The rows' keys, escaped as JSON texts without their quotes."""
        parts: list[Text] = [json_text(self._form.key_prefix)[1:-1]]
        for name in self._form.key:
            values = self._escaped[name]
            safe = pc.replace_substring(values, "/", "//")
            text = joined(['/\\"', safe, '\\"'])
            parts.append(pc.fill_null(text, "/_") if values.null_count else text)
        return joined(parts)

    def _values(self) -> pa.Array:
        present = self._present()
        if present is None:
            return self._object(self._escaped)
        return members(self._form.columns, list(self._escaped.values()), present)

    def _object(self, texts: dict[str, pa.Array]) -> pa.Array:
        """All members of an object. What stands between two values without NULL is one constant."""
        parts: list[Text] = []
        pending = ""
        for name, values in texts.items():
            pending += ("," if parts or pending else "") + json_text(name) + ":"
            if values.null_count:
                parts += [pending, quoted(values)]
                pending = ""
            else:
                parts += [pending + '"', values]
                pending = '"'
        return joined([*parts, pending])

    def _present(self) -> list[Flags] | None:
        """For each column, in which rows it is; None if all are in all."""
        index = self._rows.schema.get_field_index(ABSENT)
        if index < 0 or self._rows.column(index).null_count == self._count:
            return None
        bitmaps = Bitmaps(pc.cast(self._rows.column(index), pa.large_binary()))
        present = [np.ones(self._count, np.bool_) for _ in self._form.columns]
        for number, rows in enumerate(present):
            rows[bitmaps.rows_without(number)] = False
        return present

    def _old_values(self) -> pa.Array | None:
        """Of updates with whole rows: the values before, of what changed."""
        index = self._rows.schema.get_field_index(OLD)
        is_update = self._kind == _UPDATE
        if index < 0 or not is_update.any():
            return None
        old = self._rows.column(index)
        told = is_update & old.is_valid().to_numpy(zero_copy_only=False)
        before = old.flatten()
        changed = [
            told & _differs(values, self._new[name]) for name, values in zip(self._form.columns, before, strict=True)
        ]
        texts = members(self._form.columns, [escaped(values) for values in before], changed)
        return pc.if_else(pa.array(told), joined([',"old_value":{', texts, "}"]), NOTHING)

    def _headers(self, keys: pa.Array, *, ends_whole: bool) -> Iterator[Text]:
        """From behind the value to behind the last header."""
        relation = orjson.dumps([self._form.schema, self._form.table]).decode()
        if self._count and not self._tx.any():  # of a base: all are inserts, and there is no transaction
            yield f',"headers":{{"operation":"insert","relation":{relation}'
            return
        yield ',"headers":{"operation":"'
        yield self._operations()
        yield f'","relation":{relation}'
        if XID in self._rows.schema.names:
            yield ',"txids":['
            yield pc.fill_null(pc.cast(self._rows.column(XID), pa.string()), "")
            yield "]"
        yield ',"lsn":"'
        yield pc.cast(self._rows.column(TX), pa.string())
        yield '","op_position":'
        yield pc.cast(self._rows.column(OP), pa.string())
        last = np.append(self._tx[1:] != self._tx[:-1], ends_whole)
        yield _LAST if last.all() else pc.if_else(pa.array(last), constant(_LAST), NOTHING)
        if (changed := self._key_changes(keys)) is not None:
            yield changed

    def _operations(self) -> Text:
        if (self._kind == self._kind[:1]).all():
            return Kind(int(self._kind[0])).name.lower() if self._count else ""
        names = pa.array(["", *(kind.name.lower() for kind in Kind)])
        return names.take(pa.array(self._kind))

    def _key_changes(self, keys: pa.Array) -> pa.Array | None:
        """A changed key is a DELETE and, one offset above, an INSERT: each has the other's key."""
        first = _begins_pair(self._tx, self._op, self._kind)
        if not first.any():
            return None
        to = np.append(first, False)
        following = keys.take(pa.array(np.minimum(np.arange(self._count) + 1, self._count - 1)))
        preceding = keys.take(pa.array(np.maximum(np.arange(self._count) - 1, 0)))
        changed = pc.if_else(pa.array(to), joined([',"key_change_to":"', following, '"']), NOTHING)
        from_ = pa.array(np.insert(first, 0, False))
        return pc.if_else(from_, joined([',"key_change_from":"', preceding, '"']), changed)


def _differs(before: pa.Array, after: pa.Array) -> Flags:
    """In which rows two columns differ; NULL equals NULL."""
    is_same = pc.or_(pc.fill_null(pc.equal(before, after), False), pc.and_(before.is_null(), after.is_null()))
    different: Flags = ~is_same.to_numpy(zero_copy_only=False)
    return different


def _begins_pair(tx: Unsigned, op: Unsigned, kind: Unsigned) -> Flags:
    """For each row but the last, whether it and the next are the halves of an update that changed the key."""
    pair: Flags = (
        (tx[1:] == tx[:-1])
        & (op[1:] == op[:-1] + 1)
        & (op[1:] % 2 == 1)
        & (kind[:-1] == _DELETE)
        & (kind[1:] == _INSERT)
    )
    return pair


def control(name: str, **facts: object) -> bytes:
    """A message about the stream itself."""
    return orjson.dumps({"headers": {"control": name, **facts}})


def up_to_date(last_seen: int) -> bytes:
    """Nothing is missing up to the last transaction that was seen."""
    return control("up-to-date", global_last_seen_lsn=str(last_seen))


def snapshot_end(xmin: int, xmax: int, xip: Sequence[int]) -> bytes:
    """The end of a base, and which transactions it has seen."""
    return control("snapshot-end", xmin=str(xmin), xmax=str(xmax), xip_list=[str(xid) for xid in xip])
