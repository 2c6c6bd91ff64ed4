"""The demo's readers find whatever came twice, was left out, or differs; and nothing where all is right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.demo.fold import Fold, Mismatch, Rows, compare
from shapes.client_state import Batch, Change

KEYS = st.sampled_from("abc")
DEEDS = st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=40)


def change(key: str, operation: str, value: int | None = None, at: int | None = None) -> Change:
    headers = {} if at is None else {"lsn": str(1000 + at // 3), "op_position": at % 3}
    return Change(key, operation, {"id": key} | ({} if value is None else {"v": value}), None, headers)


def history(deeds: list[tuple[str, int]]) -> tuple[list[Change], dict[str, int]]:
    """Changes that could have happened: a value that is there again is a delete."""
    rows: dict[str, int] = {}
    changes = []
    for at, (key, value) in enumerate(deeds):
        if rows.get(key) == value:
            del rows[key]
            changes.append(change(key, "delete", None, at))
        else:
            changes.append(change(key, "update" if key in rows else "insert", value, at))
            rows[key] = value
    return changes, rows


@given(DEEDS, st.integers(1, 7))
def test_what_happened_is_what_is_there(deeds: list[tuple[str, int]], size: int) -> None:
    changes, rows = history(deeds)
    fold = Fold("shape")
    for start in range(0, len(changes), size):
        fold.take(Batch(changes[start : start + size]))
    assert fold.keyed(("id",), ("id", "v")) == {(key,): (key, value) for key, value in rows.items()}
    assert fold.changes == len(changes)


@given(DEEDS.filter(bool), st.data())
def test_a_change_that_comes_twice_is_found(deeds: list[tuple[str, int]], data: st.DataObject) -> None:
    changes, _ = history(deeds)
    at = data.draw(st.integers(0, len(changes) - 1))
    with pytest.raises(Mismatch):
        Fold("shape").take(Batch([*changes[: at + 1], *changes[at:]]))


@pytest.mark.parametrize(
    "changes",
    [
        [change("a", "update", 1, 1)],
        [change("a", "delete", None, 1)],
        [change("a", "insert", 1), change("a", "insert", 1)],
        [change("a", "insert", 1, 5), change("b", "insert", 1, 4)],
    ],
)
def test_what_cannot_be_is_found(changes: list[Change]) -> None:
    with pytest.raises(Mismatch, match=r"^shape: "):
        Fold("shape").take(Batch(changes))


def test_a_shape_that_begins_anew_has_only_what_comes_then() -> None:
    fold = Fold("shape")
    fold.take(Batch([change("a", "insert", 1), change("b", "insert", 2, 9)], is_up_to_date=True))
    fold.take(Batch(must_refetch=True))
    assert not fold.is_up_to_date
    fold.take(Batch([change("a", "insert", 3), change("a", "update", 4, 1)], is_up_to_date=True))
    assert (fold.keyed(("id",), ("v",)), fold.changes, fold.restarts) == ({("a",): (4,)}, 1, 1)


ROWS = st.dictionaries(st.tuples(st.integers(0, 3)), st.tuples(st.integers(0, 2)))


@given(ROWS, ROWS)
def test_whatever_differs_is_found(found: Rows, wanted: Rows) -> None:
    compare("shape", "here", found, dict(found))
    if found != wanted:
        with pytest.raises(Mismatch, match=r"^shape: here has "):
            compare("shape", "here", found, wanted)
