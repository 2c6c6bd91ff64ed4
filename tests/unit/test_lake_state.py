"""The lake's state against a dict: folds, merges, files of key ranges, over random changes of random tables."""

import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.lake.changes import Typed
from storage.lake.errors import LakeDamage
from storage.lake.keys import keys_of_state
from storage.lake.limits import STATE_FILE_ROWS
from storage.lake.lives import Lives, fold_lives
from storage.lake.quarantine import pack, unpack
from storage.lake.state import Rewrite, StateFile, divided, low_of, merge, packed, rewrites, shares
from storage.lake.table_schema import TableSchema, lake_names
from storage.rows import Kind, row_schema

OIDS = {"a": 23, "b": 25, "n": 20, "t": 25, "d": 1082}
COLUMNS = ["a", "b", "n", "t", "d"]
NUMERIC = 1700, (10 << 16 | 2) + 4


def schema_of(key: tuple[str, ...], **types: tuple[int, int]) -> TableSchema:
    columns = [[name, place, *types.get(name, (OIDS[name], -1))] for place, name in enumerate(COLUMNS, 1)]
    return TableSchema.of_definition({"version": 1, "columns": columns, "key": [*key], "log": "full"})


SCHEMAS = [schema_of(("a",)), schema_of(("b",)), schema_of(("a", "b")), schema_of(("d",)), schema_of(("b", "d"))]

Row = dict[str, str | None]
Key = tuple[str | None, ...]
KEYS = {"a": ["-7", "0", "3", "10", "200"], "b": ["", "x", "xy", "y"], "d": ["2024-01-01", "infinity", "1999-12-31"]}
VALUES = {
    "a": st.sampled_from(KEYS["a"]),
    "b": st.sampled_from(KEYS["b"]),
    "d": st.sampled_from([None, *KEYS["d"], "0044-03-15 BC"]),
    "n": st.none() | st.integers(-9, 9).map(str) | st.just(str(2**70)),
    "t": st.none() | st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=3),
}


class Story:
    """Changes that can happen, and the rows that they leave."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.rows: dict[Key, Row] = {}
        self.changes: list[dict[str, Any]] = []

    def step(self, data: st.DataObject) -> None:
        key = tuple(data.draw(st.sampled_from(KEYS[name])) for name in self.schema.key)
        known: Row = dict(zip(self.schema.key, key, strict=True))
        kind = Kind.INSERT if key not in self.rows else data.draw(st.sampled_from([Kind.UPDATE, Kind.DELETE]))
        if data.draw(st.integers(0, 30)) == 0:
            self.rows = {}
            self.tell(Kind.TRUNCATE, None)
            return
        if kind is Kind.DELETE:
            del self.rows[key]
            self.tell(kind, known)
            return
        others = [name for name in COLUMNS if name not in known]
        sent = others if kind is Kind.INSERT else [name for name in others if data.draw(st.booleans())]
        values = known | {name: data.draw(VALUES[name]) for name in sent}
        self.rows[key] = self.rows.get(key, {}) | values
        self.tell(kind, values)

    def tell(self, kind: Kind, values: Row | None) -> None:
        absent = 0
        for place, name in enumerate(COLUMNS):
            absent |= (values is not None and name not in values) << place
        new = None if values is None else {name: values.get(name) for name in COLUMNS}
        bitmap = absent.to_bytes(1, "little") if absent else None
        number = len(self.changes)
        self.changes.append(
            {"tx": 100 + number // 3, "op": 2 * (number % 3), "kind": kind, "absent": bitmap, "new": new}
        )

    def batch(self, start: int, stop: int) -> list[pa.RecordBatch]:
        return [pa.RecordBatch.from_pylist(self.changes[start:stop], row_schema(COLUMNS))]


def stories(data: st.DataObject, schema: TableSchema) -> Story:
    story = Story(schema)
    for _ in range(data.draw(st.integers(0, 25))):
        story.step(data)
    return story


def told(rows: pa.Table, schema: TableSchema) -> dict[Key, Row]:
    """A state as texts again: from values, or from what is quarantined."""
    found = {}
    for row in rows.to_pylist():
        bad = {entry["column"]: entry["text"] for entry in row["_quarantined"] or []}
        texts = {name: bad.get(name, None if row[name] is None else str(row[name])) for name in COLUMNS}
        found[tuple(texts[name] for name in schema.key)] = texts
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: "+".join(schema.key))
@given(st.data())
def test_a_state_has_the_rows_that_the_changes_leave(schema: TableSchema, data: st.DataObject) -> None:
    """Batch after batch, each into files of a few rows, of which only the touched ones are rewritten."""
    story = stories(data, schema)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(story.changes)), max_size=4)) | {0, len(story.changes)})
    files: dict[str, pa.Table] = {}
    for start, stop in pairwise(cuts):
        lives = fold_lives(story.batch(start, stop), schema)
        listed = [StateFile(path, low_of(schema, rows), len(rows)) for path, rows in files.items()]
        if lives.is_emptied:
            files, listed = {}, []
        taken = []
        for rewrite in rewrites(listed, lives.keys, small_rows=2):
            part = lives.between(rewrite.low, rewrite.high)
            taken += part.keys.to_pylist()
            old = [files.pop(path) for path in sorted(rewrite.paths, key=lambda p: low_of(schema, files[p]))]
            merged, _ = merge(pa.concat_tables(old) if old else None, part, schema)
            for place, piece in enumerate(divided(merged, rows_max=2, bytes_max=1 << 30)):
                files[f"{start}-{rewrite.low}-{place}"] = piece
        assert taken == lives.keys.to_pylist()
    ordered = sorted(files.values(), key=lambda rows: low_of(schema, rows))
    rows = pa.concat_tables([schema.state.empty_table(), *ordered])
    assert told(rows, schema) == story.rows
    keys = keys_of_state(schema, rows)
    assert keys.equals(keys.take(pc.sort_indices(keys)))


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: "+".join(schema.key))
@given(st.data())
def test_folding_in_two_steps_is_folding_at_once(schema: TableSchema, data: st.DataObject) -> None:
    story = stories(data, schema)
    middle, end = data.draw(st.integers(0, len(story.changes))), len(story.changes)
    once = fold_lives(story.batch(0, end), schema)
    parts = [fold_lives(story.batch(0, middle), schema), fold_lives(story.batch(middle, end), schema)]
    twice = fold_lives([batch for part in parts for batch in part.stored()], schema)
    assert as_rows(twice) == as_rows(once)
    assert twice.is_emptied == once.is_emptied


@pytest.mark.parametrize("schema", SCHEMAS[:3], ids=lambda schema: "+".join(schema.key))
@given(st.data())
def test_ranges_of_folded_rows_are_all_of_them_once(schema: TableSchema, data: st.DataObject) -> None:
    """Also those ranges in which there are none."""
    story = stories(data, schema)
    lives = fold_lives(story.batch(0, len(story.changes)), schema)
    known = [-1, 1, 5] if schema.key == ("a",) else ["", "x", "xz"]
    bounds = [None, *sorted(data.draw(st.sets(st.sampled_from([*known, *lives.keys.to_pylist()])))), None]
    parts = [lives.between(low, high) for low, high in pairwise(bounds)]
    assert [len(part.keys) for part in parts] == [sum(batch.num_rows for batch in part.rows) for part in parts]
    assert [row for part in parts for row in as_rows(part)] == as_rows(lives)


def inside(key: Any, low: Any, high: Any) -> bool:
    return (low is None or key >= low) and (high is None or key < high)


@given(st.data())
def test_shares_of_a_range_are_the_range(data: st.DataObject) -> None:
    samples = sorted(data.draw(st.lists(st.integers(0, 50), max_size=30)))
    low, high = data.draw(st.none() | st.integers(0, 20)), data.draw(st.none() | st.integers(21, 50))
    found = shares(Rewrite(("a",), low, high), pa.array(samples, pa.int64()), 10, rows_max=40)
    assert (found[0].low, found[-1].high) == (low, high)
    assert all(one.high == other.low for one, other in pairwise(found))
    assert all(one.low is None or one.low != one.high for one in found)
    lows: list[Any] = [one.low for one in found[1:]]
    assert lows == sorted(set(lows))
    assert all(one.is_share for one in found) or len(found) == 1
    for one in found:
        mine = [key for key in samples if inside(key, low, high) and inside(key, one.low, one.high)]
        assert len(mine) <= 8 or len(set(mine)) < len(mine), "about as many rows as a file takes"


SIZES = st.lists(st.tuples(st.integers(1, STATE_FILE_ROWS // 8), st.integers(1, 100)), max_size=40)


@given(SIZES, st.booleans())
def test_row_groups_are_packed_into_files(sizes: list[tuple[int, int]], is_tail: bool) -> None:
    files = packed(sizes, is_tail=is_tail)
    assert [number for file in files for number in file] == [*range(len(sizes))]
    counts = [sum(sizes[number][0] for number in file) for file in files]
    assert all(0 < count <= STATE_FILE_ROWS * 11 // 8 for count in counts)
    full = counts[:-1] if is_tail else counts[: len(counts) if len(counts) > 1 else 0]
    assert all(count > STATE_FILE_ROWS * 3 // 8 for count in full)


@pytest.mark.parametrize("grows", [True, False], ids=["growing keys", "random keys"])
def test_files_of_a_state_stay_few(*, grows: bool) -> None:
    """A state of 10M rows that came in by 10,000: group by group, in numbers alone."""
    group, chance = STATE_FILE_ROWS // 8, random.Random(1)
    files: list[list[int]] = [[0]]
    for _ in range(1000):
        weights = [1 + sum(file) for file in files]
        place = len(files) - 1 if grows else chance.choices(range(len(files)), weights)[0]
        file = files[place]
        at = len(file) - 1 if grows else chance.randrange(len(file))
        rows = file[at] + 10_000
        file[at : at + 1] = [rows] if rows <= group * 5 // 4 else [rows // 2, rows - rows // 2]
        parts = packed([(rows, 1) for rows in file], is_tail=place == len(files) - 1)
        files[place : place + 1] = [file[part.start : part.stop] for part in parts]
    assert sum(map(sum, files)) == 10_000_000
    assert len(files) <= 64
    assert max(map(sum, files)) <= STATE_FILE_ROWS * 11 // 8


def as_rows(lives: Lives) -> list[Any]:
    return [row | {"absent": row["absent"] or b""} for batch in lives.rows for row in batch.to_pylist()]


@given(st.data())
def test_changes_are_the_log_row_by_row(data: st.DataObject) -> None:
    story = stories(data, SCHEMAS[0])
    table = Typed(story.batch(0, len(story.changes)), SCHEMAS[0]).as_changes()
    assert len(table) == len(story.changes)
    for row, change in zip(table.to_pylist(), story.changes, strict=True):
        assert (row["_tx"], row["_op"], row["_kind"]) == (change["tx"], change["op"], change["kind"].name.lower())
        bits = int.from_bytes(change["absent"] or b"", "little")
        absent = [name for place, name in enumerate(COLUMNS) if bits >> place & 1]
        assert (row["_unchanged"] or []) == (absent if change["kind"] is Kind.UPDATE else [])
        bad = {entry["column"]: entry["text"] for entry in row["_quarantined"] or []}
        for name, text in (change["new"] or {}).items():
            assert text == bad.get(name, None if row[name] is None else str(row[name]))


def test_an_update_of_a_row_that_is_not_there_is_damage() -> None:
    story = Story(SCHEMAS[0])
    story.tell(Kind.UPDATE, {"a": "1", "t": "x"})
    with pytest.raises(LakeDamage, match="never inserted"):
        merge(None, fold_lives(story.batch(0, 1), SCHEMAS[0]), SCHEMAS[0])


def test_a_key_whose_text_the_value_does_not_give_back_is_stored() -> None:
    schema = schema_of(("n",), n=NUMERIC)
    story = Story(schema)
    everything = {"a": "1", "b": "", "d": None, "t": None}
    story.tell(Kind.INSERT, everything | {"n": "1.50"})
    story.tell(Kind.INSERT, everything | {"n": "NaN"})
    rows, quarantined = merge(None, fold_lives(story.batch(0, 2), schema), schema)
    assert rows.column("_key").to_pylist() == ["1.50", "NaN"]
    assert quarantined == 1


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c"]), unique=True), max_size=8))
def test_quarantined_texts_are_packed_and_unpacked(rows: list[list[str]]) -> None:
    texts = {
        name: pa.array([f"{name}{place}" if name in row else None for place, row in enumerate(rows)], pa.large_string())
        for name in "abc"
    }
    packed = pack(len(rows), texts)
    assert [sorted(entry["column"] for entry in row or []) for row in packed.to_pylist()] == list(map(sorted, rows))
    found = unpack(packed, "abc")
    assert found == {name: column for name, column in texts.items() if column.null_count < len(column)}


def test_names_are_told_apart_by_every_engine() -> None:
    assert lake_names(["a", "A", "a b", "a_b", "_tx", "é"]) == ["a", "A_2", "a_b", "a_b_2", "_tx_2", "é"]
    assert lake_names(["a", "A"])[:1] == lake_names(["a"])


@given(st.integers(0, 100), st.integers(1, 20))
def test_rows_are_divided_into_full_files_and_a_rest(count: int, rows_max: int) -> None:
    sizes = [len(piece) for piece in divided(pa.table({"a": range(count)}), rows_max=rows_max, bytes_max=1 << 30)]
    assert sum(sizes) == count
    assert all(size == rows_max for size in sizes[:-1])
    assert not sizes or 0 < sizes[-1] <= rows_max + rows_max // 4


def test_a_small_file_takes_its_small_neighbour_along() -> None:
    files = [StateFile("x", 0, 10), StateFile("y", 10, 1), StateFile("z", 20, 1)]
    keys = pa.array([11, 25], pa.int64())
    (both,) = rewrites(files, keys, small_rows=5)
    assert (both.paths, both.low, both.high) == (("y", "z"), 10, None)
    (alone,) = rewrites(files, pa.array([-3, 4], pa.int64()), small_rows=5)
    assert (alone.paths, alone.low, alone.high) == (("x",), None, 10)
