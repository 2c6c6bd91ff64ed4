"""Files of a state, rewritten in part: what engines read of them is what a merge of all rows gives."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.lake import staging, state, state_files
from storage.lake import state_joins as joins
from storage.lake.keys import keys_of_state
from storage.lake.lives import Lives, fold_lives
from storage.lake.parquet_files import Group, encoded, facts_of, groups_in
from storage.lake.state import Rewrite, StateFile, rewrites
from storage.lake.state_files import rewrite_files
from storage.lake.state_joins import state_joins
from storage.lake.table_schema import TableSchema
from storage.rows import Kind, row_schema

NUMBERED = {"version": 1, "columns": [["id", 1, 20, -1], ["t", 2, 25, -1]], "key": ["id"], "log": "full"}
TEXTUAL = {"version": 1, "columns": [["id", 1, 25, -1], ["t", 2, 25, -1]], "key": ["id"], "log": "full"}
SCHEMAS = [TableSchema.of_definition(NUMBERED), TableSchema.of_definition(TEXTUAL)]


@pytest.fixture(scope="module", autouse=True)
def small_files() -> Iterator[None]:
    """Files of 16 rows, row groups of 2."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (state, state_files, joins):
            patch.setattr(module, "STATE_FILE_ROWS", 16)
        yield


class Table:
    """A state's files in a folder, and its rows by a dict."""

    def __init__(self, folder: Path, schema: TableSchema) -> None:
        self.folder, self.schema = folder, schema
        self.rows: dict[str, str | None] = {}
        self.files: dict[str, StateFile] = {}
        self.written: list[int] = []
        """Rows of row groups that the last step encoded."""

    def step(self, changes: dict[str, str | None], gone: set[str]) -> None:
        """Put some keys, take others away."""
        told = [(Kind.UPDATE if key in self.rows else Kind.INSERT, key, text) for key, text in changes.items()]
        told += [(Kind.DELETE, key, None) for key in sorted(gone)]
        self.rows |= changes
        self.rows = {key: text for key, text in self.rows.items() if key not in gone}
        rows = [
            {"tx": 9, "op": 2 * place, "kind": int(kind), "absent": None, "new": {"id": key, "t": text}}
            for place, (kind, key, text) in enumerate(told)
        ]
        lives = fold_lives([pa.RecordBatch.from_pylist(rows, row_schema(["id", "t"]))], self.schema)
        for part in rewrites([*self.files.values()], lives.keys, small_rows=4):
            self.put(part, lives.between(part.low, part.high))

    def put(self, part: Rewrite, lives: Lives) -> None:
        new = rewrite_files(self.folder, 1, part, lives, self.schema)
        for path in part.paths:
            del self.files[path]
        for file in new:
            rows, size, low = facts_of(self.folder / file.name)
            assert (rows, low) == (file.rows, file.low)
            self.files[file.name] = StateFile(file.name, low, rows, size)

    def check(self) -> None:
        """Files are sorted and disjoint, and say of themselves what is in them; engines read the rows."""
        paths = [str(self.folder / file.path) for file in sorted(self.files.values(), key=lambda file: file.low)]
        found = pa.concat_tables([self.schema.state.empty_table(), *map(pq.read_table, paths)])
        assert dict(zip(map(str, found["id"].to_pylist()), found["t"].to_pylist(), strict=True)) == self.rows
        keys = keys_of_state(self.schema, found).to_pylist()
        assert keys == sorted(keys)
        assert len(set(keys)) == len(keys)
        for path in paths:
            groups = groups_in(Path(path))
            content, start = pq.read_table(path), 0
            assert 0 < len(content) <= 16 + 4
            for group in groups:
                rows = content.slice(start, group.facts.rows)
                assert group.low == keys_of_state(self.schema, rows)[0].as_py()
                start += group.facts.rows
            assert start == len(content)

    def check_engines(self) -> None:
        paths = [str(self.folder / name) for name in self.files]
        if not paths:
            return
        by_duckdb = duckdb.read_parquet(paths).project("id::text, t")
        assert dict(by_duckdb.fetchall()) == self.rows
        by_polars = pl.scan_parquet(paths).select(pl.col("id").cast(pl.String), "t").collect().rows()
        assert dict(by_polars) == self.rows
        if self.rows:
            key = next(iter(self.rows))
            rows = duckdb.read_parquet(paths).filter(f"id = '{key}'").fetchall()
            assert len(rows) == 1  # statistics of a group that was carried over say what is in it


KEYS = st.integers(0, 60).map(str)


@pytest.mark.parametrize("schema", SCHEMAS, ids=["number", "text"])
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_state_that_is_rewritten_in_part_has_all_rows(schema: TableSchema, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        table = Table(Path(folder), schema)
        table.step({str(key): "old" for key in range(0, 60, 2)}, set())
        for _ in range(data.draw(st.integers(1, 5))):
            near = data.draw(st.integers(0, 60))
            keys = KEYS if data.draw(st.booleans()) else st.integers(near, near + 2).map(str)
            put = data.draw(st.dictionaries(keys, st.none() | st.text("ab", max_size=2), max_size=5))
            gone = data.draw(st.sets(st.sampled_from(sorted(table.rows)), max_size=4)) if table.rows else set()
            table.step(put, gone - set(put))
            table.check()
        nothing = fold_lives([pa.RecordBatch.from_pylist([], row_schema(["id", "t"]))], schema)
        for part in state_joins([*table.files.values()]):
            table.put(part, nothing)
        table.check()
        sizes = [file.rows for file in sorted(table.files.values(), key=lambda file: file.low)]
        assert not any(one < 4 and other < 4 for one, other in pairwise(sizes))
        table.check_engines()


def test_a_change_of_one_key_encodes_one_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path, SCHEMAS[0])
    table.step({str(key): "old" for key in range(16)}, set())
    (before,) = table.files
    found = list[int]()

    def counting(rows: pa.Table, schema: pa.Schema, group_rows: int, lows: list[int | str]) -> list[Group]:
        found.append(len(rows))
        return encoded(rows, schema, group_rows, lows)

    monkeypatch.setattr(state_files, "encoded", counting)
    old = {group.low: bytes(group.source[slice(*group.facts.span)]) for group in groups_in(tmp_path / before)}
    table.step({"7": "new"}, set())
    assert found == [2]
    (after,) = table.files
    new = {group.low: bytes(group.source[slice(*group.facts.span)]) for group in groups_in(tmp_path / after)}
    assert {low for low in old if old[low] != new[low]} == {6}
    table.check()


def test_a_file_of_other_columns_is_written_anew(tmp_path: Path) -> None:
    table = Table(tmp_path, SCHEMAS[0])
    table.step({str(key): "old" for key in range(16)}, set())
    wider = NUMBERED | {"columns": [["id", 1, 20, -1], ["t", 2, 25, -1], ["more", 3, 23, -1]]}
    schema = TableSchema.of_definition(wider)
    row = {"tx": 9, "op": 0, "kind": 1, "absent": None, "new": {"id": "3", "t": "new", "more": "7"}}
    names = ["id", "t", "more"]
    row["kind"] = int(Kind.INSERT)
    lives = fold_lives([pa.RecordBatch.from_pylist([row], row_schema(names))], schema)
    (part,) = rewrites([*table.files.values()], lives.keys)
    (new,) = rewrite_files(tmp_path, 2, part, lives, schema)
    found = pq.read_table(tmp_path / new.name)
    assert found.schema.names == [*names, "_quarantined"]
    assert found["more"].to_pylist() == [7 if key == 3 else None for key in range(16)]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["number", "text"])
@settings(deadline=None)
@given(st.data())
def test_staged_rows_of_all_ranges_are_the_rows(schema: TableSchema, data: st.DataObject) -> None:
    """Also of ranges that no row belongs to, and of no rows at all."""
    keys = sorted(data.draw(st.sets(KEYS, max_size=20)))
    rows = [
        {"tx": 9, "op": 2 * place, "kind": int(Kind.INSERT), "absent": None, "new": {"id": key, "t": "x"}}
        for place, key in enumerate(keys)
    ]
    lives = fold_lives([pa.RecordBatch.from_pylist(rows, row_schema(["id", "t"]))], schema)
    drawn = sorted(data.draw(st.sets(KEYS, max_size=4)), key=lambda key: int(key) if schema is SCHEMAS[0] else key)
    bounds = [None, *(int(key) if schema is SCHEMAS[0] else key for key in drawn), None]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "STAGED_BATCH_ROWS", 3)
        path = staging.stage(Path(folder), lives)
        found = [staging.staged(path, Rewrite((), low, high), schema) for low, high in pairwise(bounds)]
    assert [key for part in found for key in part.keys.to_pylist()] == lives.keys.to_pylist()
    assert [row for part in found for batch in part.rows for row in batch.to_pylist()] == [
        row for batch in lives.rows for row in batch.to_pylist()
    ]
