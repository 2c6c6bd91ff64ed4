"""Messages are found wherever the bytes were split, by the search as by the walk."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.source.errors import MessageTooLarge, ProtocolError, SourceError
from cdc.source.framing import HEAD_BYTES, Message, find_messages, first_message

# Bodies that look like heads inside, and heads of other messages between those of data.
HEADS = st.sampled_from([b"d\0\0\0\x09wwwww", b"d\0\0\0\x05w", b"w", b"k", b"", b"d\0\0\0\0w"])
BODIES = st.one_of(st.binary(max_size=30), st.lists(HEADS, max_size=3).map(b"".join))
MESSAGES = st.lists(st.tuples(st.sampled_from([b"d", b"d", b"d", b"N", b"k"]), BODIES), max_size=8)


def encode(messages: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(tag + (len(body) + 4).to_bytes(4, "big") + body for tag, body in messages)


def found_in(data: bytes, places: list[int], search_bytes_min: int) -> tuple[list[bytes], list[Message]]:
    """What is found when the bytes arrive in pieces that end at these places."""
    buffer = np.frombuffer(data, np.uint8)
    start = 0
    frames: list[bytes] = []
    others: list[Message] = []
    for filled in [*sorted(place % (len(data) + 1) for place in places), len(data)]:
        found = find_messages(buffer, start, filled, search_bytes_min=search_bytes_min)
        frames += [data[at:end] for at, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True)]
        others += found.others
        start = found.consumed
        assert start <= filled
        assert found.wanted >= HEAD_BYTES
    return frames, others


@given(MESSAGES, st.binary(max_size=8), st.lists(st.integers(0, 500), max_size=5), st.sampled_from([0, 10**6]))
def test_messages_are_found_wherever_the_bytes_were_split(
    messages: list[tuple[bytes, bytes]], rest: bytes, places: list[int], search_bytes_min: int
) -> None:
    cut_short = b"d\0\0\1\0" + rest
    frames, others = found_in(encode(messages) + cut_short, places, search_bytes_min)
    assert frames == [body for tag, body in messages if tag == b"d"]
    assert others == [Message(tag.decode(), body) for tag, body in messages if tag != b"d"]


@example(b"d\0\0\0\tw" + bytes(9), [])  # behind a message the head of the next one, which is too short, and no more
@given(st.one_of(st.binary(max_size=60), st.lists(HEADS).map(b"".join)), st.lists(st.integers(0, 60), max_size=3))
def test_any_bytes_give_the_same_messages_or_the_same_error(data: bytes, places: list[int]) -> None:
    outcomes: list[object] = []
    for search_bytes_min in (0, 10**6):
        for cuts in (places, []):
            try:
                outcomes.append(found_in(data, cuts, search_bytes_min))
            except SourceError as error:
                outcomes.append((type(error), str(error)))
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_a_message_above_the_limit_is_refused_before_it_is_received() -> None:
    head = np.frombuffer(b"d\x10\0\0\0w", np.uint8)
    whole = np.frombuffer(b"d\0\0\x03\xe8w" + bytes(995), np.uint8)
    for search_bytes_min in (0, 10_000):
        for data in (head, whole):
            with pytest.raises(MessageTooLarge):
                find_messages(data, 0, len(data), message_bytes_max=1000, search_bytes_min=search_bytes_min)
        found = find_messages(whole, 0, len(whole), message_bytes_max=1001, search_bytes_min=search_bytes_min)
        assert len(found.starts) == 1


def test_a_message_shorter_than_its_head_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        find_messages(np.frombuffer(b"d\0\0\0\3w", np.uint8), 0, 6)


def test_the_first_message_is_taken_alone() -> None:
    data = np.frombuffer(b"W\0\0\0\7\0\0\0d\0\0\0\4", np.uint8)
    assert first_message(data, 0, 8) == Message("W", b"\0\0\0")
    assert first_message(data, 0, 7) is None
    assert first_message(data, 0, 3) is None
