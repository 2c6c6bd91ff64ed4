"""The table of a birth's steps: every way goes on, and ends."""

import pytest

from shapes.birth_steps import ENDS, NEXT, Event, Patience, Step


def reachable(start: Step, without: frozenset[Event] = frozenset()) -> set[Step]:
    found, todo = {start}, [start]
    while todo:
        step = todo.pop()
        following = {after for (before, event), after in NEXT.items() if before is step and event not in without}
        todo += following - found
        found |= following
    return found


def test_every_step_is_reached_and_none_is_a_trap() -> None:
    assert reachable(Step.PUBLISHING) == set(Step)
    for step in set(Step) - ENDS:
        assert reachable(step) & ENDS, f"{step} leads nowhere"
        assert (step, Event.DONE) in NEXT
    assert not [step for step, _ in NEXT if step in ENDS]


def test_rows_are_copied_only_after_the_record() -> None:
    """A11: nobody comes to copying but from recording."""
    assert {before for (before, _), after in NEXT.items() if after is Step.COPYING} == {Step.RECORDING}
    assert {before for (before, _), after in NEXT.items() if after is Step.RECORDING} == {Step.LOOKING}


def test_what_was_recorded_is_never_left_behind() -> None:
    """After a record only the three ways remain that remove it or make it whole."""
    after = {NEXT[Step.COPYING, event] for event in Event if (Step.COPYING, event) in NEXT}
    assert after == {Step.FINISHING, Step.RETREATING, Step.FAILING}
    assert NEXT[Step.RECORDING, Event.LOST] is Step.RETREATING


@pytest.mark.parametrize(("step", "event"), sorted(NEXT), ids=str)
def test_whoever_stays_pauses(step: Step, event: Event) -> None:
    """Else a server that refuses at once would be asked without end."""
    pause = Patience().pause(step, event, 1)
    assert pause >= 0
    if NEXT[step, event] is step:
        assert pause > 0


def test_pauses_grow_to_a_bound() -> None:
    patience = Patience(retake_seconds_min=1, retake_seconds_max=60)
    pauses = [patience.pause(Step.RETREATING, Event.DONE, times) for times in range(1, 50)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert set(pauses[6:]) == {60}
