"""What an altered publication means to parts of partitioned tables, against trees that are walked from their leaves."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source.publication import Member, PublicationState, changes_between, leaves_of, parts_of

ROOT, OTHER = 100, 200
INNER, LEAVES = (1, 2, 3), (4, 5, 6, 7, 8)

Way = tuple[tuple[int, int], ...]
"""From the root down: each part, and who hung it there."""


@dataclass
class Tree:
    """Partitions of `ROOT`: what each hangs on, and who did that. Of the inner ones, each hangs on a smaller one."""

    above: dict[int, tuple[int, int]] = field(default_factory=dict)

    def way(self, part: int) -> Way | None:
        if part == ROOT:
            return ()
        if part not in self.above:
            return None
        at, by = self.above[part]
        way = self.way(at)
        return None if way is None else (*way, (part, by))

    def leaves_below(self, part: int) -> dict[int, Way]:
        """Those that hang on it, or it itself."""
        ways = {leaf: self.way(leaf) for leaf in LEAVES}
        return {leaf: way for leaf, way in ways.items() if way is not None and (part == ROOT or part in dict(way))}

    def state(self, *members: int) -> PublicationState:
        paths = {
            str(leaf): "".join(f"/{part}:{by}" for part, by in way) for leaf, way in self.leaves_below(ROOT).items()
        }
        rows = {oid: Member(oid, 700, f"public.t{oid}") for oid in (ROOT, *members)}
        return PublicationState("p", 1, 700, tables=rows, partitions={str(ROOT): paths, str(OTHER): {}})


def hung(inner: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[int, int] | None]:
    return st.one_of(st.none(), st.tuples(inner, st.integers(700, 701)))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    places = {part: draw(hung(st.sampled_from([ROOT, *range(1, part)]))) for part in INNER}
    places |= {leaf: draw(hung(st.sampled_from([ROOT, *INNER]))) for leaf in LEAVES}
    return Tree({part: place for part, place in places.items() if place is not None})


@given(before=trees(), after=trees(), members=st.sets(st.sampled_from([*INNER, *LEAVES])))
def test_a_part_is_concerned_iff_its_leaves_hang_otherwise(before: Tree, after: Tree, members: set[int]) -> None:
    found = changes_between(before.state(*members), after.state(*members))
    is_other = before.leaves_below(ROOT) != after.leaves_below(ROOT)
    assert [change.table for change in found] == [ROOT] * is_other
    for change in found:
        others = {part for part in (*INNER, *LEAVES) if before.leaves_below(part) != after.leaves_below(part)}
        came = {leaf for leaf in LEAVES if not before.leaves_below(leaf)}
        assert change.parts == others - came - members, "who came was followed by nobody through the root"
        assert change.tables == change.parts | {ROOT}


@pytest.mark.parametrize("xmin", [None, 900], ids=["taken out", "added again"])
@given(tree=trees(), members=st.sets(st.sampled_from(LEAVES)))
def test_what_leaves_takes_along_what_is_published_through_it(xmin: int | None, tree: Tree, members: set[int]) -> None:
    before = tree.state(*members)
    rows = {oid: member for oid, member in before.tables.items() if oid != ROOT}
    again = {} if xmin is None else {ROOT: replace(before.tables[ROOT], xmin=xmin)}
    partitions = before.partitions if again else {str(OTHER): {}}
    [change] = changes_between(before, replace(before, tables=rows | again, partitions=partitions))
    assert change.table == ROOT
    assert change.parts == {part for part in (*INNER, *LEAVES) if tree.leaves_below(part)} - members


@given(tree=trees())
def test_the_leaves_of_every_part_are_known(tree: Tree) -> None:
    state = tree.state()
    assert leaves_of(state, ROOT) == frozenset(tree.leaves_below(ROOT))
    assert leaves_of(state, OTHER) == frozenset()
    assert parts_of(state, ROOT) == {part for part in (*INNER, *LEAVES) if tree.leaves_below(part)}
    for part in INNER:
        assert (leaves_of(state, part) or set()) == set(tree.leaves_below(part)), "nothing is known of an empty one"
    for leaf in LEAVES:
        assert leaves_of(state, leaf) is None, "it is no partitioned table"
