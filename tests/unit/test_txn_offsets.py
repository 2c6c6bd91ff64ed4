"""The mapping from a shape's last rows to its transactions' ends, against a plain list."""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from flush_tracker.errors import OffsetsOutOfOrder, TooManyTransactions
from flush_tracker.limits import TXN_OFFSETS_MAX
from flush_tracker.txn_offsets import TxnOffsets
from storage.offset import BEFORE_ALL, OP_INFINITE, SNAPSHOT_END, LogOffset

Entry = tuple[LogOffset, LogOffset]

gaps = st.integers(1, 3)
ops = st.integers(0, 6)


def append(offsets: TxnOffsets, entries: list[Entry]) -> None:
    columns = [(last.tx, last.op, aligned.op) for last, aligned in entries]
    offsets.append(*np.array(columns, dtype=np.int64).reshape(-1, 3).T)


class MappingLife(RuleBasedStateMachine):
    """Transactions come in any number at a time, flushes end anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = TxnOffsets()
        self.entries: list[Entry] = []

    @initialize(start=st.sampled_from([0, 2**63 - 2**12]))
    def start(self, start: int) -> None:
        self.tx = start

    @rule(plan=st.lists(st.tuples(gaps, ops, ops), max_size=30))
    def commits(self, plan: list[tuple[int, int, int]]) -> None:
        entries = []
        for gap, last_op, more in plan:
            self.tx += gap
            entries.append((LogOffset(self.tx, last_op), LogOffset(self.tx, last_op + more)))
        append(self.offsets, entries)
        self.entries += entries

    @rule(back=st.integers(-1, 40), op=st.one_of(ops, st.just(OP_INFINITE)))
    def asked(self, back: int, op: int) -> None:
        offset = LogOffset(self.tx - back, op)
        complete = [aligned for last, aligned in self.entries if last <= offset]
        assert self.offsets.aligned_at(offset) == (complete[-1] if complete else None)

    @rule(back=st.integers(-1, 40), op=ops)
    def dropped(self, back: int, op: int) -> None:
        mark = LogOffset(self.tx - back, op)
        kept = [entry for entry in self.entries if entry[1] > mark]
        assert self.offsets.drop(mark) == len(self.entries) - len(kept)
        self.entries = kept

    @rule(back=st.integers(0, 3))
    def refused(self, back: int) -> None:
        if self.entries:
            tx = self.entries[-1][0].tx - back
            with pytest.raises(OffsetsOutOfOrder):
                append(self.offsets, [(LogOffset(tx, 0), LogOffset(tx, 1))])

    @invariant()
    def is_as_long_as_the_list(self) -> None:
        assert len(self.offsets) == len(self.entries)
        assert self.offsets._columns.shape[1] <= 4 * max(len(self.entries), 16)


TestMappingLife = MappingLife.TestCase


def test_the_last_row_of_a_shape_may_lie_far_below_its_transactions_end() -> None:
    offsets = TxnOffsets()
    append(offsets, [(LogOffset(10, 4), LogOffset(10, 99)), (LogOffset(20, 0), LogOffset(20, 0))])
    assert offsets.aligned_at(LogOffset(10, 2)) is None
    assert offsets.aligned_at(LogOffset(10, 4)) == LogOffset(10, 99)  # nothing of this shape is missing
    assert offsets.aligned_at(LogOffset(19, OP_INFINITE)) == LogOffset(10, 99)
    assert offsets.aligned_at(LogOffset(20, 0)) == LogOffset(20, 0)


def test_the_last_change_may_be_the_second_half_of_a_split_update() -> None:
    offsets = TxnOffsets()
    append(offsets, [(LogOffset(10, 5), LogOffset.aligned(10, 3))])
    assert offsets.aligned_at(LogOffset(10, 5)) == LogOffset(10, 5)


def test_places_before_all_transactions_complete_none() -> None:
    offsets = TxnOffsets()
    append(offsets, [(LogOffset(10, 0), LogOffset(10, 1))])
    assert offsets.aligned_at(BEFORE_ALL) is None
    assert offsets.aligned_at(SNAPSHOT_END) is None
    assert offsets.drop(SNAPSHOT_END) == 0


def test_a_row_above_its_transactions_end_is_refused() -> None:
    with pytest.raises(OffsetsOutOfOrder):
        append(TxnOffsets(), [(LogOffset(10, 2), LogOffset(10, 1))])


def test_it_is_bounded_and_a_refused_append_changes_nothing() -> None:
    offsets = TxnOffsets()
    txs = np.arange(1, TXN_OFFSETS_MAX + 1, dtype=np.int64)
    zeros = np.zeros_like(txs)
    offsets.append(txs, zeros, zeros)
    with pytest.raises(TooManyTransactions):
        append(offsets, [(LogOffset(TXN_OFFSETS_MAX + 1, 0), LogOffset(TXN_OFFSETS_MAX + 1, 1))])
    assert offsets.drop(LogOffset(TXN_OFFSETS_MAX - 1, 0)) == TXN_OFFSETS_MAX - 1
    assert len(offsets) == 1
    assert offsets._columns.shape[1] < 100, "what a burst needed is given back"
