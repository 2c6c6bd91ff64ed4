"""Places in the WAL, and the frames of the walsender."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source.errors import ProtocolError
from cdc.source.lsn import Lsn, format_lsn, parse_lsn
from cdc.source.walsender import CopyBatch, Status, sort_frames
from tests.pgoutput_bytes import data_frame, keepalive_frame

LSNS = st.integers(0, 2**64 - 1)


@given(LSNS)
def test_an_lsn_is_read_as_it_was_written(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


def test_an_lsn_looks_as_in_postgres() -> None:
    assert format_lsn(0x16_B374_D848) == "16/B374D848"
    assert parse_lsn("0/0") == 0


@pytest.mark.parametrize("text", ["", "16", "16/", "/1", "1/2/3", "g/1", "123456789/1", "1/ 2", "1/2\n"])
def test_what_is_not_an_lsn_is_an_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_lsn(text)


@given(LSNS, LSNS, st.booleans(), st.integers(0, 2**61))
def test_a_status_is_read_as_it_was_written(received: int, flushed: int, wants_reply: bool, now: int) -> None:
    status = Status(Lsn(received), Lsn(flushed), wants_reply)
    frame = status.encode(now)
    assert len(frame) == 34
    assert Status.decode(frame) == status
    with pytest.raises(ProtocolError):
        Status.decode(frame[:-1])
    with pytest.raises(ProtocolError):
        Status.decode(b"x" + frame[1:])


@given(st.lists(st.tuples(LSNS, st.binary(max_size=5) | st.none() | st.booleans())))
def test_frames_are_sorted_and_lose_their_headers(frames: "list[tuple[int, bytes | bool | None]]") -> None:
    encoded = [
        data_frame(what, lsn) if isinstance(what, bytes) else keepalive_frame(lsn, wants_reply=bool(what))
        for lsn, what in frames
    ]
    found = sort_frames(CopyBatch.join(encoded))
    ranges = zip(found.messages.starts, found.messages.ends, strict=True)
    assert [found.messages.buffer[start:end].tobytes() for start, end in ranges] == [
        what for _, what in frames if isinstance(what, bytes)
    ]
    keepalives = [(lsn, bool(what)) for lsn, what in frames if not isinstance(what, bytes)]
    assert found.received == max((lsn for lsn, _ in frames), default=0)
    assert (found.keepalive is None) == (not keepalives)
    if found.keepalive is not None:
        assert found.keepalive.wal_end == max(lsn for lsn, _ in keepalives)
        assert found.keepalive.wants_reply == any(wanted for _, wanted in keepalives)


@pytest.mark.parametrize("frame", [b"", b"w", b"w" + bytes(23), b"k" + bytes(16), b"k" + bytes(18), b"x" + bytes(30)])
def test_a_frame_of_another_shape_is_an_error(frame: bytes) -> None:
    for frames in ([frame], [data_frame(b"message"), frame], [frame, keepalive_frame(1)]):
        with pytest.raises(ProtocolError):
            sort_frames(CopyBatch.join(frames))


def test_no_frames_are_no_messages() -> None:
    empty = np.empty(0, np.int64)
    assert len(sort_frames(CopyBatch(np.empty(0, np.uint8), empty, empty)).messages) == 0
