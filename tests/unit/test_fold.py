"""Folding rows of a log against a plain model that goes row by row with dicts.

Strategy: random histories over few keys, so that runs, lives and barriers meet often. The keys are such that joining
their parts with any separator would mix them up. Rows are built as logs have them: bitmaps that are NULL, short or too
long, structs that are NULL, keys in `old` alone, batches that are slices of others or empty.

Invariants: those at the head of `storage.fold`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import columns as columns_module
from storage.errors import CannotFold, InvalidRows
from storage.fold import LEDGER_SCHEMA, as_chunk, chunks_by_wire, fold_pieces, fold_rows, fold_updates, merge_ledgers
from storage.limits import ROW_WIRE_OVERHEAD_BYTES
from storage.rows import Kind, row_schema, wire_sizes

KEY = ["left", "right"]
NAMES = [*KEY, *(f"value_{number}" for number in range(7))]
"""Nine columns: the last one's bit is in the second byte of a bitmap."""

KEYS = [("a|b", "c"), ("a", "b|c"), ("", ""), ("", "é\x00"), ("é\x00", "")]
UNKNOWN_KEYS = [(None, "c"), ("a", None)]
VALUES = ["", "x", "été", "a|b"]

Offset = tuple[int, int]
Values = dict[str, str | None]


@dataclass(frozen=True)
class Row:
    """One row; `new` has the columns that were sent. `tail` follows in the bitmap on the two bytes of the columns."""

    tx: int
    op: int
    kind: Kind
    new: Values | None
    old: Values | None = None
    tail: bytes = b""

    @property
    def at(self) -> Offset:
        return self.tx, self.op

    @property
    def xid(self) -> int | None:
        """Who the transaction was; of some it is not known."""
        return None if self.tx % 3 == 0 else 2**32 - self.tx

    @property
    def absent(self) -> bytes | None:
        number = sum(1 << i for i, name in enumerate(NAMES) if name not in self.sent)
        if self.tail:
            return number.to_bytes(2, "little") + self.tail
        return number.to_bytes((number.bit_length() + 7) // 8, "little") or None

    @property
    def key(self) -> tuple[str, ...] | None:
        parts = [(self.new or {}).get(name) for name in KEY]
        olds = [(self.old or {}).get(name) for name in KEY]
        both = [old if part is None else part for part, old in zip(parts, olds, strict=True)]
        return None if None in both else tuple(both)  # type: ignore[arg-type]  # None is not in it

    @property
    def sent(self) -> Values:
        return dict.fromkeys(NAMES) if self.new is None else self.new

    @property
    def stored(self) -> dict[str, Any]:
        """Without the form of the bitmap, which says the same in many ways."""
        whole = None if self.new is None else dict.fromkeys(NAMES) | self.new
        absent = {name for name in NAMES if name not in self.sent}
        return {"at": self.at, "kind": self.kind, "absent": absent, "new": whole, "old": self.old}


# --- The model ---


@dataclass
class Run:
    """UPDATEs of one key, so far."""

    rows: list[Row] = field(default_factory=list)

    @property
    def folded(self) -> Row:
        if len(self.rows) == 1:
            return self.rows[0]
        union: Values = {}
        for row in self.rows:
            union |= row.sent
        has_new = self.rows[-1].new is not None
        return replace(self.rows[-1], new=union if has_new else None, old=self.rows[0].old, tail=b"")

    @property
    def range(self) -> tuple[Offset, Offset]:
        return self.rows[0].at, self.rows[-1].at


def model_updates(rows: Sequence[Row]) -> tuple[list[Row], list[tuple[Offset, Offset]]]:
    done: list[Run] = []
    running: dict[tuple[str, ...], Run] = {}
    for row in rows:
        if row.kind == Kind.UPDATE and row.key is not None:
            running.setdefault(row.key, Run()).rows.append(row)
            continue
        if row.kind == Kind.TRUNCATE or row.key is None:
            done += running.values()
            running.clear()
        elif row.key in running:
            done.append(running.pop(row.key))
        done.append(Run([row]))
    done += running.values()
    return sorted((run.folded for run in done), key=lambda row: row.at), model_merge(
        [run.range for run in done if len(run.rows) > 1]
    )


def model_merge(ranges: Sequence[tuple[Offset, Offset]]) -> list[tuple[Offset, Offset]]:
    merged: list[tuple[Offset, Offset]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def model_state(rows: Sequence[Row]) -> list[Values] | None:
    """The living rows; None where they cannot be told."""
    lives: dict[tuple[str, ...], Values] = {}
    is_lost = False
    for row in rows:
        if row.kind == Kind.TRUNCATE:
            lives, is_lost = {}, False
        elif row.key is None:
            is_lost = True
        elif row.kind == Kind.UPDATE:
            lives.setdefault(row.key, {}).update(row.sent)
        else:
            lives.pop(row.key, None)
            if row.kind == Kind.INSERT:
                lives[row.key] = dict(row.sent)
    if is_lost or any(life.keys() != set(NAMES) for life in lives.values()):
        return None
    return list(lives.values())


# --- Rows as batches, and back ---


def batches_of(
    rows: Sequence[Row], cuts: Sequence[int] = (), *, old: bool = True, xid: bool = True
) -> list[pa.RecordBatch]:
    """One batch, cut into slices; also empty ones."""
    schema = row_schema(NAMES, old=old, xid=xid)
    arrays = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    bounds = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    return [batch.slice(start, stop - start) for start, stop in pairwise(bounds)]


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[Row]:
    rows = []
    for batch in batches:
        for values in batch.to_pylist():
            bits = int.from_bytes(values.get("absent") or b"", "little")
            new = values["new"]
            if new is not None:
                new = {name: new[name] for i, name in enumerate(NAMES) if not bits >> i & 1}
            rows.append(Row(values["tx"], values["op"], Kind(values["kind"]), new, values.get("old")))
            assert values.get("xid", rows[-1].xid) == rows[-1].xid
    return rows


def stored(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [row.stored for row in rows]


def ranges_of(ledger: pa.RecordBatch) -> list[tuple[Offset, Offset]]:
    assert ledger.schema == LEDGER_SCHEMA
    return [((r["from_tx"], r["from_op"]), (r["to_tx"], r["to_op"])) for r in ledger.to_pylist()]


def ledger_of(ranges: Sequence[tuple[Offset, Offset]]) -> pa.RecordBatch:
    numbers = [[*begin, *end] for begin, end in ranges]
    columns = [pa.array([row[i] for row in numbers], pa.uint64()) for i in range(4)]
    return pa.RecordBatch.from_arrays(columns, schema=LEDGER_SCHEMA)


def outcome(fold: Callable[[], list[pa.RecordBatch]]) -> list[Values] | None:
    try:
        batches = fold()
    except CannotFold:
        return None
    for batch in batches:
        assert batch.schema == row_schema(NAMES, absent=False)
        assert batch.num_rows
    rows = rows_of(batches)
    assert all(row.at == (0, 0) and row.kind == Kind.INSERT for row in rows)
    return [row.sent for row in rows]


def by_key(state: list[Values] | None) -> list[str] | None:
    """A state apart from the order of its rows."""
    return None if state is None else sorted(str([row[name] for name in NAMES]) for row in state)


# --- Histories ---

text = st.none() | st.sampled_from(VALUES)
wholes = st.fixed_dictionaries({name: text for name in NAMES if name not in KEY})
some = st.dictionaries(st.sampled_from([name for name in NAMES if name not in KEY]), text)
cuts = st.lists(st.integers(0, 60), max_size=5)


def all_of(value: str, names: Sequence[str] = NAMES) -> Values:
    return dict.fromkeys(names, value)


def keyed(key: Sequence[str | None], values: Values) -> Values:
    return {name: (dict(zip(KEY, key, strict=True)) | values)[name] for name in NAMES if name in KEY or name in values}


@st.composite
def base_rows(draw: st.DrawFn) -> list[Row]:
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    return [Row(0, number // 2, Kind.INSERT, keyed(key, draw(wholes))) for number, key in enumerate(keys)]


@st.composite
def log_rows(draw: st.DrawFn, *, lawful: bool = False) -> list[Row]:
    """A history. Lawful: each row has a known key, and who is inserted is inserted whole."""
    rows = []
    tx, op = 1, 0
    weights = [Kind.UPDATE] * 5 + [Kind.INSERT, Kind.DELETE] * 2 + [Kind.TRUNCATE]
    for kind in draw(st.lists(st.sampled_from(weights), max_size=40)):
        tx, op = (tx + 1, 0) if draw(st.booleans()) else (tx, op + 2)
        key = draw(st.sampled_from(KEYS if lawful else KEYS * 4 + UNKNOWN_KEYS))
        old = draw(st.none() | wholes)
        new: Values | None = keyed(key, draw(wholes if lawful and kind == Kind.INSERT else some | wholes))
        if kind in (Kind.DELETE, Kind.TRUNCATE) and draw(st.booleans()):
            new = keyed(key, dict.fromkeys(NAMES[2:])) if kind == Kind.DELETE and old is None else None
        elif kind == Kind.UPDATE and old is not None and new is not None and not lawful and draw(st.booleans()):
            del new[draw(st.sampled_from(KEY))]  # a long key that did not change
        tail = draw(st.sampled_from([b"", b"\x00", b"\xff"]))
        rows.append(Row(tx, op, kind, new, None if old is None else keyed(key, old), tail))
    return rows


@st.composite
def foldable(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """A base and a log without updates of rows that are not there, so that their state can always be told."""
    base, log = draw(base_rows()), []
    living = {row.key for row in base}
    for row in draw(log_rows(lawful=True)):
        if row.kind == Kind.UPDATE and row.key not in living:
            continue
        log.append(row)
        if row.kind == Kind.TRUNCATE:
            living.clear()
        elif row.kind == Kind.DELETE:
            living.discard(row.key)
        else:
            living.add(row.key)
    return base, log


histories = st.tuples(base_rows(), log_rows()) | foldable()


# --- Compaction ---


@given(log_rows(), cuts)
def test_updates_fold_as_in_the_model(rows: list[Row], at: list[int]) -> None:
    folded = fold_updates(batches_of(rows, at), KEY)
    expected, ledger = model_updates(rows)
    assert stored(rows_of(folded.batches)) == stored(expected)
    assert ranges_of(folded.ledger) == ledger


@given(log_rows(), cuts)
def test_folding_what_was_folded_changes_nothing(rows: list[Row], at: list[int]) -> None:
    once = fold_updates(batches_of(rows, at), KEY).batches
    twice = fold_updates(once, KEY)
    assert stored(rows_of(twice.batches)) == stored(rows_of(once))
    assert twice.ledger.num_rows == 0


@given(log_rows(), cuts)
def test_rows_that_are_not_folded_keep_their_bytes(rows: list[Row], at: list[int]) -> None:
    before = {(row["tx"], row["op"]): row for batch in batches_of(rows) for row in batch.to_pylist()}
    given_rows = {id(row) for row in rows}
    alone = {row.at for row in model_updates(rows)[0] if id(row) in given_rows}
    for batch in fold_updates(batches_of(rows, at), KEY).batches:
        for row in batch.to_pylist():
            if (row["tx"], row["op"]) in alone:
                assert row == before[row["tx"], row["op"]]


@given(histories)
def test_a_cut_outside_the_ledger_sees_the_same_rows(history: tuple[list[Row], list[Row]]) -> None:
    base, rows = history
    folded = fold_updates(batches_of(rows), KEY)
    ranges = ranges_of(folded.ledger)
    kept = rows_of(folded.batches)
    for cut in (row.at for row in rows):
        if not any(begin <= cut < end for begin, end in ranges):
            assert by_key(model_state([*base, *(row for row in kept if row.at <= cut)])) == by_key(
                model_state([*base, *(row for row in rows if row.at <= cut)])
            )


@given(log_rows(), st.integers(0, 40))
def test_segments_folded_apart_and_then_together_fold_as_one(rows: list[Row], cut: int) -> None:
    parts = [fold_updates(batches_of(part), KEY) for part in (rows[:cut], rows[cut:])]
    again = fold_updates([batch for part in parts for batch in part.batches], KEY)
    at_once = fold_updates(batches_of(rows), KEY)
    assert stored(rows_of(again.batches)) == stored(rows_of(at_once.batches))
    merged = merge_ledgers([*(part.ledger for part in parts), again.ledger])
    assert ranges_of(merged) == ranges_of(at_once.ledger)


@given(log_rows())
def test_a_log_without_the_optional_columns_folds(rows: list[Row]) -> None:
    whole = [
        replace(row, new=None if row.new is None else dict.fromkeys(NAMES) | row.new, old=None, tail=b"")
        for row in rows
    ]
    batches = [batch.drop_columns(["xid", "absent", "old"]) for batch in batches_of(whole)]
    folded = fold_updates(batches, KEY)
    assert stored(rows_of(folded.batches)) == stored(model_updates(whole)[0])
    assert all(batch.schema == batches[0].schema for batch in folded.batches)


@given(log_rows())
def test_a_folded_row_has_the_transaction_of_the_last(rows: list[Row]) -> None:
    folded = fold_updates(batches_of(rows), KEY).batches
    assert [xid for batch in folded for xid in batch["xid"].to_pylist()] == [row.xid for row in model_updates(rows)[0]]


@given(log_rows(), cuts)
def test_without_a_key_nothing_is_folded(rows: list[Row], at: list[int]) -> None:
    batches = batches_of(rows, at)
    folded = fold_updates(batches, [])
    assert folded.batches == batches
    assert folded.ledger.num_rows == 0


def test_absent_is_not_null_and_the_first_old_values_stay() -> None:
    a, b = (all_of(value) for value in ("a", "b"))
    key: Values = dict.fromkeys(KEY, "k")
    rows = [
        Row(1, 0, Kind.UPDATE, key | {"value_0": "x", "value_1": "y"}, old=a),
        Row(1, 2, Kind.UPDATE, key | {"value_0": None, "value_6": "z"}, old=b),
        Row(2, 0, Kind.UPDATE, key, old=b),
    ]
    folded = fold_updates(batches_of(rows), KEY)
    assert stored(rows_of(folded.batches)) == stored(
        [Row(2, 0, Kind.UPDATE, key | {"value_0": None, "value_1": "y", "value_6": "z"}, old=a)]
    )
    assert ranges_of(folded.ledger) == [((1, 0), (2, 0))]


# --- A new base ---


@given(histories, cuts, cuts)
def test_rows_fold_as_in_the_model(history: tuple[list[Row], list[Row]], base_at: list[int], log_at: list[int]) -> None:
    base, log = history
    folded = outcome(lambda: fold_rows(batches_of(base, base_at, old=False), batches_of(log, log_at), KEY))
    assert folded == model_state([*base, *log])


@given(foldable())
def test_rows_that_are_inserted_first_can_always_be_folded(history: tuple[list[Row], list[Row]]) -> None:
    base, log = (batches_of(rows) for rows in history)
    state = outcome(lambda: fold_rows(base, log, KEY))
    assert state is not None
    assert outcome(lambda: fold_rows(base, fold_updates(log, KEY).batches, KEY)) == state


@given(histories, cuts, cuts)
def test_a_base_in_pieces_folds_as_a_whole(
    history: tuple[list[Row], list[Row]], base_at: list[int], log_at: list[int]
) -> None:
    whole, log = history
    base = list({row.key: row for row in whole}.values())  # each key is in one piece
    pieces = [[piece] for piece in batches_of(base, base_at, old=False)]
    changes = batches_of(log, log_at)
    folded = outcome(lambda: [batch for part in fold_pieces(pieces, changes, KEY) for batch in part])
    assert folded == outcome(lambda: fold_rows(batches_of(base, old=False), changes, KEY))


@given(histories, st.integers(0, 40))
def test_rows_fold_step_by_step(history: tuple[list[Row], list[Row]], cut: int) -> None:
    base, first, second = (batches_of(rows) for rows in (history[0], history[1][:cut], history[1][cut:]))
    in_steps = outcome(lambda: fold_rows(fold_rows(base, first, KEY), second, KEY))
    if in_steps is not None:
        assert outcome(lambda: fold_rows(base, [*first, *second], KEY)) == in_steps


@given(histories)
def test_a_folded_log_gives_the_same_rows(history: tuple[list[Row], list[Row]]) -> None:
    base, log = (batches_of(rows) for rows in history)
    folded = fold_updates(log, KEY).batches
    assert by_key(outcome(lambda: fold_rows(base, folded, KEY))) == by_key(outcome(lambda: fold_rows(base, log, KEY)))


def test_rows_without_a_key_cannot_be_folded() -> None:
    with pytest.raises(CannotFold, match="no key columns"):
        fold_rows([], [], [])


def test_what_cannot_be_told_is_named_by_its_offset() -> None:
    key: Values = dict.fromkeys(KEY, "k")
    update = Row(3, 4, Kind.UPDATE, key)
    with pytest.raises(CannotFold, match=r"'value_0'.*at=3_4"):
        fold_rows([], batches_of([update]), KEY)
    with pytest.raises(CannotFold, match=r"key column.*at=5_0"):
        fold_rows([], batches_of([Row(5, 0, Kind.DELETE, None)]), KEY)
    assert fold_rows([], batches_of([update, Row(4, 0, Kind.DELETE, key)]), KEY) == []


def test_a_life_takes_nothing_from_the_one_before_it() -> None:
    insert, delete = Row(1, 0, Kind.INSERT, all_of("x")), Row(1, 2, Kind.DELETE, all_of("x"))
    part, rest = (all_of("x", names) for names in ([*KEY, *NAMES[5:]], NAMES[:5]))
    rows = [insert, delete, Row(2, 0, Kind.UPDATE, part), Row(3, 0, Kind.UPDATE, rest)]
    with pytest.raises(CannotFold, match=r"at=2_0"):
        fold_rows([], batches_of(rows[:3]), KEY)
    assert outcome(lambda: fold_rows([], batches_of(rows), KEY)) == [all_of("x")]  # the two say all there is
    with pytest.raises(CannotFold, match=r"at=2_0"):
        fold_rows([], batches_of([insert, Row(2, 0, Kind.INSERT, part)]), KEY)


def test_results_are_cut_into_batches_by_their_own_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row(tx, 0, Kind.UPDATE, all_of(f"{tx % 20:02}")) for tx in range(1, 41)]
    monkeypatch.setattr(columns_module, "COMBINE_BYTES_MAX", 3 * (ROW_WIRE_OVERHEAD_BYTES + 2 * len(NAMES)))
    for folded in (fold_updates(batches_of(rows, [7, 30]), KEY).batches, fold_rows([], batches_of(rows), KEY)):
        assert [batch.num_rows for batch in folded] == [3, 3, 3, 3, 3, 3, 2]


# --- Input that is none ---


def test_bad_rows_are_refused_by_name() -> None:
    one, two = (Row(tx, 0, Kind.UPDATE, all_of("x")) for tx in (1, 2))
    good = batches_of([one])
    for fold in (fold_updates, lambda batches, key: fold_rows([], batches, key)):
        with pytest.raises(InvalidRows, match="order"):
            fold(batches_of([two, one]), KEY)
        with pytest.raises(InvalidRows, match="different columns"):
            fold([*good, *batches_of([two], old=False)], KEY)
        with pytest.raises(InvalidRows, match="'none' is not among"):
            fold(good, ["left", "none"])
    with pytest.raises(InvalidRows, match="not an INSERT"):
        fold_rows(good, [], KEY)


# --- Ledgers and chunks ---

offsets = st.tuples(st.integers(0, 4) | st.just(2**63 - 1), st.integers(0, 4) | st.just(2**64 - 1))
ranges = st.lists(st.tuples(offsets, offsets).map(lambda pair: (min(pair), max(pair))).filter(lambda r: r[0] < r[1]))


@given(st.lists(ranges))
def test_ledgers_merge_as_in_the_model(ledgers: list[list[tuple[Offset, Offset]]]) -> None:
    merged = merge_ledgers([ledger_of(ledger) for ledger in ledgers])
    assert ranges_of(merged) == model_merge([one for ledger in ledgers for one in ledger])


@given(log_rows(), cuts, st.integers(-1, 600))
def test_chunks_are_a_function_of_the_rows(rows: list[Row], at: list[int], size: int) -> None:
    expected: list[list[dict[str, Any]]] = []
    begin, number = 0, -1
    for batch in batches_of(rows):
        for row, wire in zip(batch.to_pylist(), wire_sizes(batch).tolist(), strict=True):
            if begin // max(1, size) != number:
                number = begin // max(1, size)
                expected.append([])
            expected[-1].append(row)
            begin += wire
    chunks = chunks_by_wire(batches_of(rows, at), size)
    assert [chunk.to_pylist() for chunk in chunks] == expected


def test_a_chunk_has_one_offset() -> None:
    rows = [Row(0, 0, Kind.INSERT, all_of(str(number))) for number in range(3)]
    (batch,) = batches_of(rows)
    chunk = as_chunk(batch, 7)
    assert [row.at for row in rows_of([chunk])] == [(0, 7)] * 3
    assert chunk.schema == batch.schema
    assert chunk.column("new") == batch.column("new")
    assert np.array_equal(wire_sizes(chunk), wire_sizes(batch))
