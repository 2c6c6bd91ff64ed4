"""What the demo confirms is the longest run of transactions that are durable everywhere: no more, and no less."""

from hypothesis import given
from hypothesis import strategies as st

from cdc.demo.confirmed import Confirmed
from storage.offset import SNAPSHOT_END, LogOffset

TABLES = ("a", "b", "c")

STEPS = st.lists(
    st.one_of(
        st.sets(st.sampled_from(TABLES), min_size=1),  # a transaction that touches these
        st.tuples(st.sampled_from(TABLES), st.integers(0, 40)),  # a flush: durable up to this transaction
    ),
    max_size=60,
)


@given(STEPS)
def test_it_is_the_longest_run_that_is_durable(steps: list[set[str] | tuple[str, int]]) -> None:
    confirmed = Confirmed(-1, dict.fromkeys(TABLES, SNAPSHOT_END))
    touched: list[set[str]] = []
    durable = dict.fromkeys(TABLES, 0)
    before = -1
    for step in steps:
        if isinstance(step, set):
            touched.append(step)
            confirmed.expect(len(touched) - 1, {table: end_of(len(touched) - 1) for table in step})
        else:
            table, upto = step
            durable[table] = max(durable[table], upto)
            confirmed.flushed(table, end_of(upto - 1))
        waiting = (number for number, tables in enumerate(touched) if any(durable[one] <= number for one in tables))
        assert confirmed.advance() == next(waiting, len(touched)) - 1
        assert confirmed.upto >= before
        before = confirmed.upto


def test_what_recovery_found_counts() -> None:
    confirmed = Confirmed(4, {"a": end_of(6), "b": end_of(5)})
    confirmed.expect(5, {"a": end_of(5), "b": end_of(5)})
    confirmed.expect(6, {"a": end_of(6), "b": end_of(6)})
    assert confirmed.advance() == 5


def end_of(number: int) -> LogOffset:
    return LogOffset.aligned(100 + number, 2)
