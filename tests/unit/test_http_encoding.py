"""Messages of rows: both ways of encoding against a plain model, and what bodies look like."""

from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.http import encoding
from shapes.http.encoding import as_one, encode, snapshot_end, up_to_date
from shapes.http.row_format import Neighbours, RowFormat, Style
from storage.rows import Kind, row_schema

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
NASTY = st.sampled_from(['"', "\\", '\\"', "\n\t\r\b\f\x1f", "a/b", "//", "{}", "\u2028", "😀", ""])
VALUES = st.none() | TEXTS | NASTY
NAMES = st.lists(TEXTS.filter(bool) | st.sampled_from(['a"b', "x.y", "p/q", "id"]), min_size=1, max_size=5, unique=True)


@st.composite
def changes(draw: st.DrawFn, *, full: bool, count: int) -> list[dict[str, Any]]:
    """Rows of a log, or of a base."""
    names = draw(NAMES)
    is_base = draw(st.booleans())
    rows, tx, op = [], 5, 0
    for _ in range(count):
        kind = Kind.INSERT if is_base else draw(st.sampled_from([Kind.INSERT, Kind.UPDATE, Kind.DELETE]))
        row: dict[str, Any] = {"tx": tx, "op": op, "kind": int(kind), "new": {name: draw(VALUES) for name in names}}
        if is_base:
            row |= {"tx": 0, "op": 0}
        row["absent"] = None
        if kind is not Kind.INSERT and not full and draw(st.booleans()):
            row["absent"] = bytes([draw(st.integers(0, 2 ** len(names) - 1)) & ~1])
        if full:
            row["old"] = {name: draw(VALUES) for name in names} if kind is Kind.UPDATE else None
        rows.append(row)
        tx, op = (tx + 1, 0) if draw(st.booleans()) else (tx, op + draw(st.integers(1, 2)))
    return rows


def batch_of(rows: list[dict[str, Any]], names: list[str], *, full: bool) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=row_schema(names, old=full))


def plain(form: RowFormat, rows: list[dict[str, Any]], index: int, *, is_end: bool) -> dict[str, Any]:
    """One message, by the words of the protocol."""

    def key(row: dict[str, Any]) -> str:
        def part(value: str | None) -> str:
            return "_" if value is None else f'"{value.replace("/", "//")}"'

        def name(text: str) -> str:
            return f'"{text.replace("/", "//").replace(".", "..")}"'

        return "/".join([f"{name(form.schema)}.{name(form.table)}", *(part(row["new"][one]) for one in form.key)])

    row = rows[index]
    bitmap = row.get("absent") or b""
    value = {
        name: text
        for place, (name, text) in enumerate(row["new"].items())
        if not (place < 8 * len(bitmap) and bitmap[place // 8] & 1 << place % 8)
    }
    headers: dict[str, Any] = {
        "operation": ["insert", "update", "delete"][row["kind"] - 1],
        "relation": [form.schema, form.table],
    }
    message: dict[str, Any] = {"key": key(row), "value": value}
    if row.get("old") is not None:
        message["old_value"] = {name: old for name, old in row["old"].items() if old != row["new"][name]}
    if row["tx"]:
        headers |= {"lsn": str(row["tx"]), "op_position": row["op"]}
        following = rows[index + 1] if index + 1 < len(rows) else None
        if is_end if following is None else following["tx"] != row["tx"]:
            headers["last"] = True
        if following and halves(row, following):
            headers["key_change_to"] = key(following)
        if index and halves(rows[index - 1], row):
            headers["key_change_from"] = key(rows[index - 1])
    return {**message, "headers": headers}


def halves(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return (
        first["tx"] == second["tx"]
        and first["op"] % 2 == 0
        and second["op"] == first["op"] + 1
        and (first["kind"], second["kind"]) == (Kind.DELETE, Kind.INSERT)
    )


@pytest.mark.parametrize("by_hand", [0, 1000], ids=["columns", "by hand"])
@pytest.mark.parametrize("full", [False, True])
@given(data=st.data())
def test_messages_are_those_of_the_model(data: st.DataObject, full: bool, by_hand: int) -> None:
    rows = data.draw(changes(full=full, count=data.draw(st.integers(1, 8))))
    names = list(rows[0]["new"])
    form = RowFormat(
        data.draw(st.sampled_from(["public", 'a"b', "x.y/z"])), "items", tuple(names), tuple(names[:1]), full
    )
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    batch = batch_of(rows, names, full=full)
    around = Neighbours(
        batch[start - 1 : start] if start else None, batch[stop : stop + 1] if stop < len(rows) else None
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "ROWS_BY_HAND_MAX", by_hand)
        body = encode(form, batch[start:stop], Style.ARRAY, around)
        events = encode(form, batch[start:stop], Style.EVENTS, around)
    near = rows[max(start - 1, 0) : stop + 1]
    expected = [plain(form, near, index, is_end=stop >= len(rows)) for index in range(len(near))]
    expected = expected[start - max(start - 1, 0) :][: stop - start]
    assert orjson.loads(b"[" + body[:-1] + b"]") == expected
    assert [orjson.loads(event.removeprefix(b"data: ")) for event in events.split(b"\n\n")[:-1]] == expected


def test_a_body_is_what_the_protocol_shows() -> None:
    form = RowFormat("public", "items", ("id", "v"), ("id",), full=False)
    batch = batch_of(
        [{"tx": 0, "op": 0, "kind": 1, "absent": None, "new": {"id": "1", "v": "x"}}], ["id", "v"], full=False
    )
    assert encode(form, batch, Style.ARRAY) == (
        b'{"key":"\\"public\\".\\"items\\"/\\"1\\"","value":{"id":"1","v":"x"},'
        b'"headers":{"operation":"insert","relation":["public","items"]}},'
    )
    assert snapshot_end(7, 9, [8]) == (b'{"headers":{"control":"snapshot-end","xmin":"7","xmax":"9","xip_list":["8"]}}')
    assert up_to_date(77) == b'{"headers":{"control":"up-to-date","global_last_seen_lsn":"77"}}'


@pytest.mark.parametrize("by_hand", [0, 1000], ids=["columns", "by hand"])
def test_a_transactions_number_is_told_where_the_log_has_it(by_hand: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "ROWS_BY_HAND_MAX", by_hand)
    form = RowFormat("public", "items", ("id",), ("id",), full=False)
    rows = [{"tx": 5, "op": 2 * op, "kind": 1, "absent": None, "new": {"id": str(op)}} for op in range(2)]
    batch = batch_of(rows, ["id"], full=False).append_column("xid", pa.array([77, 77], pa.uint32()))
    messages = orjson.loads(b"[" + encode(form, batch, Style.ARRAY)[:-1] + b"]")
    assert [message["headers"]["txids"] for message in messages] == [[77], [77]]


@pytest.mark.parametrize("by_hand", [0, 1000], ids=["columns", "by hand"])
def test_rows_from_before_logs_had_it_name_no_transaction(by_hand: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "ROWS_BY_HAND_MAX", by_hand)
    form = RowFormat("public", "items", ("id",), ("id",), full=False)
    rows = [{"tx": tx, "op": 0, "kind": 1, "xid": 77, "absent": None, "new": {"id": str(tx)}} for tx in (5, 6)]
    known = pa.RecordBatch.from_pylist(rows, schema=row_schema(["id"], xid=True))
    for order in ((0, 1), (1, 0)):
        both = [known.slice(row, 1) for row in range(2)]
        both[order[0]] = both[order[0]].drop_columns(["xid"])
        messages = orjson.loads(b"[" + encode(form, as_one(both), Style.ARRAY)[:-1] + b"]")
        assert [messages[row]["headers"]["txids"] for row in order] == [[], [77]]
