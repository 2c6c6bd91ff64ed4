"""The ladder before a slot is lost: against its rules written plainly, over any course that the slot may take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import SettingInvalid
from cdc.insurance.ladder import CALM_SHARE, MOST, Ladder, Rung, Terms, Verdict, View
from cdc.limits import WAL_HOLD_SECONDS, WAL_SETTLE_SECONDS

TERMS = Terms(None, 0.5, 0.75, 0.9)
SHARES = st.one_of(st.none(), st.floats(0, 1.3), st.sampled_from([0.4, 0.5, 0.65, 0.75, 0.8, 0.9, 0.95]))


@st.composite
def thresholds(draw: st.DrawFn) -> Terms:
    """Any steps, any of them off."""
    shares = sorted(draw(st.lists(st.integers(1, 120), min_size=3, max_size=3, unique=True)))
    return Terms(None, *(share / 100 if draw(st.booleans()) else 0.0 for share in shares))


@st.composite
def courses(draw: st.DrawFn) -> list[View]:
    now, views = 0.0, []
    for _ in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from([1.0, 5.0, 30.0]))
        views.append(
            View(
                now,
                draw(SHARES),
                draw(st.sampled_from([0.0, MOST, 1.0])),
                draw(st.one_of(st.none(), st.integers(1, 3))),
                draw(st.sampled_from([0.0, WAL_HOLD_SECONDS, 100.0])),
                draw(st.booleans()),
            )
        )
    return views


@given(thresholds(), courses())
def test_no_step_without_its_threshold(terms: Terms, views: list[View]) -> None:
    """Every rung is one that is on; entered at its threshold, left below its calm, and unknown moves nothing."""
    ladder, on = Ladder(terms), terms.thresholds
    for view in views:
        verdict = ladder.look(view)
        if view.share is None:
            assert not verdict.is_news
            continue
        entered = [rung for rung in on if verdict.before < rung <= verdict.rung]
        assert verdict.rung is Rung.CALM or verdict.rung in on
        assert not entered or view.share >= on[verdict.rung]
        assert all(view.share < on[rung] for rung in on if rung > verdict.rung and rung > verdict.before)
        assert all(view.share < on[rung] - CALM_SHARE for rung in on if verdict.rung < rung <= verdict.before)


@given(thresholds(), courses())
def test_a_shape_ends_only_where_nothing_less_helps(terms: Terms, views: list[View]) -> None:
    ladder, before = Ladder(terms), None
    last_end, begun = float("-inf"), float("-inf")
    for view in views:
        was, verdict = ladder.rung, ladder.look(view)
        lower = [rung for rung in terms.thresholds if rung < Rung.END]
        if view.share is not None and verdict.rung is Rung.END and was < max(lower, default=Rung.CALM):
            begun = view.at
        if verdict.ends is not None:
            assert view.share is not None
            assert view.share >= terms.end_at > 0
            assert before is None or view.share >= before
            assert verdict.ends == view.holder
            assert not view.is_disk_at_fault
            assert view.held_seconds >= WAL_HOLD_SECONDS
            assert view.above >= MOST
            assert view.at - max(last_end, begun) >= WAL_SETTLE_SECONDS
            last_end = view.at
        before = before if view.share is None else view.share


@given(courses())
def test_a_ladder_that_is_off_does_nothing(views: list[View]) -> None:
    ladder = Ladder(Terms(None, 0, 0, 0))
    assert {(verdict.rung, verdict.ends) for verdict in map(ladder.look, views)} == {(Rung.CALM, None)}


def test_the_whole_way_up_and_down() -> None:
    ladder = Ladder(TERMS)

    def look(at: float, share: float | None, **more: object) -> Verdict:
        known = {"above": 1.0, "holder": 7, "held_seconds": 60.0} | more
        return ladder.look(View(at, share, **known))  # type: ignore[arg-type]  # each has its type above

    steps = [(0.0, 0.2), (5.0, 0.55), (10.0, 0.45), (15.0, 0.8), (20.0, 0.85), (40.0, 0.93)]
    assert [look(at, share).rung.name for at, share in steps] == ["CALM", "ALERT", "ALERT", "PAUSE", "PAUSE", "END"]
    assert look(45, 0.94).ends is None  # one ended at 40: it has its time
    assert look(61, 0.95).ends == 7
    assert look(66, 0.85).rung is Rung.END
    assert look(70, 0.79).rung is Rung.PAUSE
    assert look(75, None).rung is Rung.PAUSE
    assert look(80, 0.1).rung is Rung.CALM


def test_a_jump_to_the_end_gives_the_steps_before_their_time() -> None:
    ladder = Ladder(TERMS)
    views = [View(at, 0.97, 1.0, 7, 60.0) for at in (100.0, 110.0, 119.0, 120.0)]
    assert [ladder.look(view).ends for view in views] == [None, None, None, 7]


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (View(200, 0.95, 1.0, 7, 60.0, is_disk_at_fault=True), "disk"),
        (View(200, 0.95, 1.0, None, 0.0), "no shape's rows"),
        (View(200, 0.95, 0.1, 7, 60.0), "long transaction"),
        (View(200, 0.92, 1.0, 7, 60.0), "becomes less"),
        (View(200, 0.95, 1.0, 7, 1.0), "not held for long"),
        (View(200, 0.85, 1.0, 7, 60.0), "left soon"),
    ],
)
def test_it_says_why_no_shape_ends(view: View, why: str) -> None:
    ladder = Ladder(TERMS)
    ladder.look(View(0, 0.93, 1.0, 7, 60.0))
    verdict = ladder.look(view)
    assert (verdict.rung, verdict.ends) == (Rung.END, None)
    assert why in verdict.why_none


def test_steps_go_up() -> None:
    with pytest.raises(SettingInvalid, match="wal-end-at is 70, and must be above wal-pause-at, which is 75"):
        Terms(None, 0.5, 0.75, 0.7)
