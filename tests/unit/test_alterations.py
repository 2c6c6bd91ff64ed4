"""What others altered in the publication: nobody records it before it is dealt with, and nothing of it is forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from cdc.source.alterations import Alterations, Changes
from cdc.source.publication import PublicationChange


def change(table: int) -> PublicationChange:
    return PublicationChange(table, "somebody took it out")


@given(
    st.lists(st.tuples(st.sampled_from(["find", "take", "handle", "give back", "connect", "judge"]), st.integers(0, 5)))
)
def test_every_change_is_found_taken_or_handled(steps: list[tuple[str, int]]) -> None:
    alterations = Alterations()
    found: list[int | None] = []
    taken: list[Changes] = []
    is_judged = True
    for step, number in steps:
        if step == "find":
            alterations.find([change(number)])
            found.append(number)
        elif step == "take":
            changes = alterations.take()
            assert [one.table for one in changes] == found
            found = []
            taken += [changes] if changes else []
        elif step in {"handle", "give back"} and taken:
            changes = taken.pop(number % len(taken))
            if step == "handle":
                alterations.handled(changes)
            else:
                alterations.give_back(changes)
                found += [one.table for one in changes]
        elif step == "connect":
            alterations.connected()
            found, taken, is_judged = [], [], False
        elif step == "judge":
            alterations.judged()
            is_judged = True
        assert [one.table for one in alterations.found] == found
        assert alterations.is_settled == (is_judged and not found and not taken)


def test_what_a_connection_before_had_taken_is_none_of_this_ones_business() -> None:
    alterations = Alterations()
    alterations.find([change(1)])
    old = alterations.take()
    alterations.connected()
    alterations.find([change(2)])
    new = alterations.take()
    alterations.judged()
    alterations.handled(old)
    alterations.give_back(old)
    assert not alterations.is_settled
    assert alterations.found == ()
    alterations.handled(new)
    assert alterations.is_settled
