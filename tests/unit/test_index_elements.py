"""What an array contains: elements that everybody names make no list that everybody walks."""

from shapes.index_branches import Branch, Elements
from shapes.index_columns import BatchColumns
from shapes.index_elements import ElementIndex
from shapes.index_keys import KeyedColumn
from shapes.index_leaves import Reached
from shapes.where.types import ARRAYS
from tests.unit.clauses import row, struct_of

TAGS = KeyedColumn("t", ARRAYS["text"])


def containing(*keys: str) -> Branch:
    return Branch({}, Elements(TAGS, frozenset(keys)))


def reached(index: ElementIndex, *arrays: str) -> dict[int, list[int]]:
    """The rows that each shape is reached by."""
    found = index.reach(BatchColumns(struct_of([row(t=array) for array in arrays])))
    assert isinstance(found, Reached)
    ends = found.counts.cumsum()
    return {
        shape: found.rows[end - count : end].tolist()
        for leaf, count, end in zip(found.leaves, found.counts, ends, strict=True)
        for shape in leaf[None]
    }


def test_a_clause_stands_under_its_rarest_element() -> None:
    index = ElementIndex(TAGS)
    for shape in range(1_000):
        index.add(containing("everybody", f"x{shape}"), None, shape)
    assert max(map(len, index._anchors.values())) == 1
    assert reached(index, "{x7,everybody}", "{x8}", "{x9,everybody,x7}") == {7: [0, 2], 9: [2]}


def test_equal_clauses_stand_together_whatever_came_between() -> None:
    index = ElementIndex(TAGS)
    index.add(containing("a", "b"), None, 1)
    for shape, other in enumerate(("a", "b", "a", "c"), start=2):
        index.add(containing(other, f"only{shape}"), None, shape)
    index.add(containing("b", "a"), None, 9)
    assert reached(index, "{a,b}", "{a}") == {1: [0], 9: [0]}
    index.remove(containing("a", "b"), None, 1)
    assert reached(index, "{a,b}") == {9: [0]}
    index.remove(containing("a", "b"), None, 9)
    assert len(index) == 4


def test_nothing_is_reached_by_no_arrays() -> None:
    index = ElementIndex(TAGS)
    index.add(containing("a"), None, 1)
    assert index.reach(BatchColumns(struct_of([row(), row(t="{}"), row(t="{NULL,b}")]))) is None
