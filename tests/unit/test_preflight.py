"""What a preflight sees: against each transaction told one by one, however the stream is cut into fragments."""

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from cdc.preflight.observation import LARGE_VALUE_BYTES, SIZE_CLASS_ERROR, Observation, Sizes
from cdc.source.fragments import Fragment, Kind
from cdc.source.pgoutput import Decoder
from cdc.source.relations import Relations
from cdc.source.walsender import CopyBatch
from storage.limits import ROW_WIRE_OVERHEAD_BYTES
from tests.pgoutput_bytes import (
    UNCHANGED,
    begin,
    commit,
    cuts,
    data_frame,
    insert,
    relation,
    streams,
    truncate,
    update,
)
from tests.plain_pgoutput import plain_items


def observed(batches: list[list[bytes]], changes_max: int = 1000) -> Observation:
    decoder, observation = Decoder(Relations(), fragment_changes_max=changes_max), Observation()
    for batch in batches:
        for event in decoder.feed(CopyBatch.join(batch)):
            if isinstance(event, Fragment):
                observation.add(event)
    return observation


@given(streams(), st.data(), st.sampled_from([1, 2, 1000]))
def test_whatever_the_cuts_the_same_is_seen(frames: list[bytes], data: DataObject, changes_max: int) -> None:
    whole, cut = observed([frames]), observed(data.draw(cuts(frames)), changes_max)
    assert cut.tables == whole.tables
    assert cut.sizes.classes.tolist() == whole.sizes.classes.tolist()
    assert (cut.sizes.count, cut.sizes.bytes) == (whole.sizes.count, whole.sizes.bytes)
    assert cut.sizes.largest_bytes == whole.sizes.largest_bytes


@given(streams())
def test_changes_and_transactions_are_those_that_were_sent(frames: list[bytes]) -> None:
    counts: Counter[Kind] = Counter()
    ended = 0
    for item in plain_items(frames):
        if item[0] == "change":
            counts[Kind(item[3])] += 1
        elif item[0] == "commit" and item[3]:
            ended += 1
    seen = observed([frames])
    told = Counter[Kind]()
    for tally in seen.tables.values():
        told[Kind.INSERT] += tally.inserts
        told[Kind.UPDATE] += tally.updates
        told[Kind.DELETE] += tally.deletes
        told[Kind.TRUNCATE] += tally.truncates
    assert +told == +counts
    assert seen.sizes.count == ended


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.99, 1.0]))
def test_a_quantile_is_near_the_real_one(sizes: list[int], share: float) -> None:
    classes = Sizes()
    classes.add(np.array(sizes[:3]), np.ones(len(sizes[:3]), np.int64))
    classes.add(np.array(sizes[3:], np.int64), np.ones(len(sizes[3:]), np.int64))
    real = sorted(sizes)[max(math.ceil(share * len(sizes)), 1) - 1]
    assert real - 1 <= classes.quantile(share) <= real * (1 + SIZE_CLASS_ERROR) + 1
    assert (classes.count, classes.bytes, classes.largest_bytes) == (len(sizes), sum(sizes), max(sizes))


def test_large_values_and_those_that_were_not_sent() -> None:
    large = "x" * LARGE_VALUE_BYTES
    frames = [
        relation(1, "orders", [("id", 23, True), ("note", 25, False)]),
        begin(100, 0, 7),
        insert(1, ["1", large]),
        update(1, ["1", UNCHANGED]),
        update(1, ["1", "small"]),
        truncate([1]),
        commit(100, 110, 0),
    ]
    seen = observed([[data_frame(frame) for frame in frames]])
    tally = seen.tables[1]
    assert (tally.inserts, tally.updates, tally.truncates, tally.updates_unsent) == (1, 2, 1, 1)
    assert tally.large_bytes == LARGE_VALUE_BYTES
    assert tally.bytes == 4 * ROW_WIRE_OVERHEAD_BYTES + 1 + len(large) + 1 + 1 + len("small")
    assert (seen.sizes.largest_bytes, seen.sizes.largest_changes) == (tally.bytes, 4)


def test_a_new_connection_begins_the_open_transaction_anew() -> None:
    described, opened = relation(1, "t", [("id", 23, True)]), begin(100, 0, 7)
    part = [data_frame(frame) for frame in (described, opened, insert(1, ["1"]))]
    rest = [*part, data_frame(commit(100, 110, 0))]
    observation = Observation()
    for frames in (part, rest):
        observation.forget_open()
        for event in Decoder(Relations()).feed(CopyBatch.join(frames)):
            if isinstance(event, Fragment):
                observation.add(event)
    assert observation.sizes.bytes == ROW_WIRE_OVERHEAD_BYTES + 1


def test_nothing_seen() -> None:
    assert [Sizes().quantile(share) for share in (0.5, 0.99)] == [0, 0]
