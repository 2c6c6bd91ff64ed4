"""The demo's writer is killed in large transactions, started again, and stopped in time, whatever comes when."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.demo.conductor import LARGE_SECONDS, LIFE_LARGE_MAX, Action, Conductor, Event, State, UnexpectedEvent


def test_the_first_life_ends_in_the_first_large_transaction() -> None:
    conductor = Conductor(Random(1))
    assert conductor.on(Event.RECOVERED, 10.0) is Action.NOTHING
    assert conductor.due(11.0) is None
    conductor.on(Event.LARGE_BEGUN, 12.0)
    assert conductor.due(12.0 + LARGE_SECONDS) is Event.MOMENT_CAME
    assert conductor.on(Event.MOMENT_CAME, 12.3) is Action.KILL
    assert conductor.due(99.0) is None
    assert conductor.on(Event.LARGE_BEGUN, 12.4) is Action.NOTHING, "its last words"
    assert conductor.on(Event.GONE, 12.5) is Action.START
    assert conductor.state is State.STARTING
    assert conductor.kills == 1


def test_time_is_up_while_it_recovers_and_it_is_stopped_when_it_has() -> None:
    conductor = Conductor(Random(1))
    conductor.ends_at = 5.0
    assert conductor.due(6.0) is None
    conductor.on(Event.RECOVERED, 7.0)
    assert conductor.due(7.0) is Event.TIME_IS_UP
    assert conductor.on(Event.TIME_IS_UP, 7.0) is Action.STOP
    conductor.on(Event.STOPPED, 8.0)
    assert conductor.state is State.DONE
    assert conductor.on(Event.GONE, 8.1) is Action.NOTHING


@pytest.mark.parametrize("events", [[], [Event.RECOVERED], [Event.RECOVERED, Event.LARGE_BEGUN]])
def test_a_writer_that_goes_by_itself_has_failed(events: list[Event]) -> None:
    conductor = Conductor(Random(1))
    for event in events:
        conductor.on(event, 0.0)
    conductor.on(Event.GONE, 0.0)
    assert conductor.state is State.FAILED


def test_what_cannot_happen_is_a_defect() -> None:
    with pytest.raises(UnexpectedEvent):
        Conductor(Random(1)).on(Event.STOPPED, 0.0)


@given(st.randoms(use_true_random=False), st.lists(st.floats(0.01, 0.5), min_size=20, max_size=200))
def test_lives_go_on_until_the_end(chance: Random, gaps: list[float]) -> None:
    conductor, now = Conductor(chance), 0.0
    conductor.ends_at = sum(gaps)
    begun_in_life = 0
    for gap in gaps:
        now += gap
        if (event := conductor.due(now)) is not None:
            action = conductor.on(event, now)
            assert (action is Action.KILL) == (conductor.state is State.KILLED)
            assert conductor.state in (State.KILLED, State.STOPPING)
        elif conductor.state is State.STARTING:
            conductor.on(Event.RECOVERED, now)
            begun_in_life = 0
        elif conductor.state is State.KILLED:
            assert conductor.on(Event.GONE, now) is Action.START
        elif conductor.state in (State.RUNNING, State.DOOMED):
            begun_in_life += conductor.state is State.RUNNING
            conductor.on(Event.LARGE_BEGUN, now)
            assert begun_in_life <= LIFE_LARGE_MAX + 1
    assert conductor.kills > 0 or len(gaps) < 3 or now >= conductor.ends_at
