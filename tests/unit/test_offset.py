"""Offsets as pairs, as text and as bytes: one order, one meaning, and no other text passes for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidOffset
from storage.offset import BEFORE_ALL, OFFSET_SIZE, OP_INFINITE, OP_MAX, SNAPSHOT_END, TX_MAX, LogOffset, offsets_of

numbers = st.integers(0, 5) | st.integers(0, 2**63 - 1) | st.sampled_from([TX_MAX - 1, TX_MAX])
pairs = st.builds(LogOffset, numbers, numbers | st.just(OP_INFINITE))
offsets = pairs | st.just(BEFORE_ALL)


@given(offsets)
def test_text_round_trip(offset: LogOffset) -> None:
    assert LogOffset.parse(str(offset)) == offset


@given(offsets, st.integers(0, 9))
def test_bytes_round_trip(offset: LogOffset, position: int) -> None:
    data = offset.to_bytes()
    assert len(data) == OFFSET_SIZE
    assert LogOffset.from_bytes(memoryview(bytes(position) + data), position) == offset


@given(st.lists(offsets))
def test_many_at_once_are_as_one_by_one(wanted: list[LogOffset]) -> None:
    made = offsets_of([offset.tx for offset in wanted], [offset.op for offset in wanted])
    assert made == wanted
    assert all(type(offset) is LogOffset for offset in made)


@given(offsets, offsets)
def test_the_order_is_that_of_the_pairs(one: LogOffset, two: LogOffset) -> None:
    as_pairs = [(-1, 0) if offset == BEFORE_ALL else (offset.tx, offset.op) for offset in (one, two)]
    assert (one < two) == (as_pairs[0] < as_pairs[1])
    assert (one == two) == (as_pairs[0] == as_pairs[1])
    assert (hash(one) == hash(two)) >= (one == two)


@given(pairs, pairs)
def test_bytes_of_pairs_are_in_their_order(one: LogOffset, two: LogOffset) -> None:
    assert (one < two) == (one.to_bytes() < two.to_bytes())


@given(st.integers(0, OP_MAX), st.integers(1, TX_MAX), st.integers(0, OP_MAX))
def test_the_landmarks_are_in_order(chunk: int, tx: int, op: int) -> None:
    in_order = [
        BEFORE_ALL,
        LogOffset.of_snapshot_chunk(chunk),
        SNAPSHOT_END,
        LogOffset(tx, op),
        LogOffset.parse(f"{tx}_inf"),
    ]
    assert in_order == sorted(in_order)
    assert len(set(in_order)) == len(in_order)
    assert [offset.is_snapshot for offset in in_order] == [False, True, True, False, False]


@given(st.integers(1, TX_MAX), st.integers(0, 10))
def test_an_aligned_offset_is_at_or_above_all_that_its_transaction_can_produce(tx: int, changes: int) -> None:
    aligned = LogOffset.aligned(tx, changes)
    ops = [2 * change + half for change in range(changes) for half in (0, 1)]  # a key update is split into two
    assert all(LogOffset(tx, op) <= aligned for op in ops)
    assert aligned < LogOffset(tx, 2 * changes) or changes == 0
    assert aligned == LogOffset(tx, max(ops, default=0))


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("-1", BEFORE_ALL),
        ("0_0", LogOffset(0, 0)),
        ("0_inf", SNAPSHOT_END),
        ("26800584_4", LogOffset(26_800_584, 4)),
        ("26800584_inf", LogOffset(26_800_584, OP_INFINITE)),
        (f"{TX_MAX}_{OP_MAX}", LogOffset(TX_MAX, OP_MAX)),
    ],
)
def test_text_forms(text: str, offset: LogOffset) -> None:
    assert LogOffset.parse(text) == offset
    assert str(offset) == text


def test_leading_zeros_are_read_but_not_written() -> None:
    assert LogOffset.parse("0_02") == LogOffset(0, 2)
    assert str(LogOffset.parse("007_02")) == "7_2"


MALFORMED = [
    *("", "_", "1_", "_1", "10", "1_2_3", "1__2", "1-2", "1,2", "1_2.0", "1.5_2", "0x1_2", "1e3_2"),
    *("1_2 ", " 1_2", "1 _2", "1_2\n", "\n1_2", "1_2\0", "\0"),
    *("-1_2", "1_-2", "-2", "--1", "-1 ", "-01", "+1_2", "1_+2", "-1_0", "-0_0"),
    *("inf", "inf_1", "inf_inf", "1_INF", "1_infinity", "1_inf2", "0_infinf", "now", "-1_inf"),
    *("\u0661_2", "1_\u0662", "\u0967_1", "\uff11_1", "\xb2_1", "1_\xb2", "1\uff3f2", "1_\u221e"),  # digits elsewhere
    *(f"{TX_MAX + 1}_0", f"0_{OP_MAX + 1}", f"{2**64 - 1}_0", f"0_{2**64 - 1}", f"0_{2**64}", f"{2**64}_0"),
    *(f"{10**20}_0", f"0_{10**20}", "1" * 5_000 + "_1", "1_" + "1" * 5_000, f"{TX_MAX + 1}_inf"),
]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: ascii(text)[:20])
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidOffset) as refused:
        LogOffset.parse(text)
    assert refused.value.facts == {"found": text}


@given(st.text() | st.from_regex(r"[-+ 0-9]{0,25}_?[-+ 0-9infINF]{0,25}", fullmatch=True))
def test_any_text_is_an_offset_or_refused(text: str) -> None:
    try:
        offset = LogOffset.parse(text)
    except InvalidOffset:
        return
    tx, _, op = text.partition("_")
    assert str(offset) == text or offset == (int(tx), OP_INFINITE if op == "inf" else int(op))
    assert offset.tx <= TX_MAX
    assert offset.op <= OP_MAX or op == "inf"
