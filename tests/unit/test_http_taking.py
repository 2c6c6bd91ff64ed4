"""How fast clients take what is sent: who is cut off and who is not, against a history that is kept whole."""

from hypothesis import given
from hypothesis import strategies as st

from shapes.http.connection_counts import Cut
from shapes.http.limits import SEND_BYTES_A_SECOND_MIN, SEND_PIECE_BYTES, SEND_SECONDS_MAX, SEND_WINDOW_SECONDS
from shapes.http.taking import Taking, TakingLimits

LIMITS = TakingLimits(silent_seconds=10, window_seconds=20, bytes_a_second=5)


def places(history: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What was taken and what waits at a look a second, from how much was taken and how much came since the last."""
    found = [history[0]]
    for more, came in history[1:]:
        taken, waiting = found[-1]
        found.append((taken + min(more, waiting), waiting - min(more, waiting) + came))
    return found


def judged(history: list[tuple[int, int]], limits: TakingLimits = LIMITS) -> list[Cut | None]:
    looks = places(history)
    taking = Taking(limits, 0, *looks[0])
    return [taking.fault(now, *look) for now, look in enumerate(looks)]


def expected(history: list[tuple[int, int]]) -> list[Cut | None]:
    """The same in words: the time since something was taken, and each window by itself."""
    looks = places(history)
    verdicts: list[Cut | None] = []
    start = 0
    for now, (taken, _) in enumerate(looks):
        silent = next(back for back in range(now + 1) if back == now or looks[now - back - 1][0] < taken)
        least = min(looks[start][1], int(LIMITS.bytes_a_second * LIMITS.window_seconds))
        is_end = now - start >= LIMITS.window_seconds
        if silent > LIMITS.silent_seconds:
            verdicts.append(Cut.TAKES_NOTHING)
        elif is_end and taken - looks[start][0] < least:
            verdicts.append(Cut.TAKES_LITTLE)
        else:
            verdicts.append(None)
            start = now if is_end else start
    return verdicts


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 1, 4, 5, 6, 30]), st.sampled_from([0, 1, 5, 200])), min_size=1, max_size=80
    )
)
def test_each_look_is_judged_by_what_came_before_it(history: list[tuple[int, int]]) -> None:
    found, wanted = judged(history), expected(history)
    end = next((number for number, one in enumerate(wanted) if one is not None), len(wanted))
    assert found[: end + 1] == wanted[: end + 1]  # a connection that is cut is not looked at again


def test_a_byte_now_and_then_does_not_hold_a_piece_for_ever() -> None:
    history = [(0, SEND_PIECE_BYTES)] + [(1, 0)] * 200
    verdicts = judged(history, TakingLimits())
    assert verdicts.index(Cut.TAKES_LITTLE) == SEND_WINDOW_SECONDS
    assert (
        judged([(0, SEND_PIECE_BYTES)] + [(0, 0)] * 200, TakingLimits()).index(Cut.TAKES_NOTHING)
        <= SEND_SECONDS_MAX + 1
    )


def test_a_slow_network_is_slow_and_no_more() -> None:
    history = [(0, SEND_PIECE_BYTES)] + [(SEND_BYTES_A_SECOND_MIN, SEND_BYTES_A_SECOND_MIN)] * 300
    assert set(judged(history, TakingLimits())) == {None}


def test_who_takes_all_that_waited_is_not_slow_however_little_it_was() -> None:
    assert set(judged([(0, 40)] + [(2, 2)] * 300, LIMITS)) == {None}
