"""The columnar decoder against the plain one on streams recorded from real servers, and what those streams cover."""

from collections import Counter
from pathlib import Path

import pytest

from cdc.source.fragments import Fragment
from cdc.source.pgoutput import Decoder
from cdc.source.relations import Relations
from cdc.source.walsender import CopyBatch
from storage.offset import LogOffset
from tests.corpus import read_frames, recorded
from tests.plain_pgoutput import NOT_SENT, Item, items_of, plain_items

RECORDED = pytest.mark.parametrize("path", recorded(), ids=lambda path: path.name.split(".")[0])


def decoded(frames: list[bytes], batch_size: int, relations: Relations | None = None) -> list[Item]:
    decoder = Decoder(relations or Relations())
    batches = (frames[at : at + batch_size] for at in range(0, len(frames), batch_size))
    return items_of(event for batch in batches for event in decoder.feed(CopyBatch.join(batch)))


@RECORDED
@pytest.mark.parametrize("batch_size", [1, 7, 10_000])
def test_a_real_stream_is_decoded_as_the_plain_decoder_does(path: Path, batch_size: int) -> None:
    frames = read_frames(path)
    assert decoded(frames, batch_size) == plain_items(frames)


@RECORDED
def test_the_corpus_has_every_message_identity_and_kind_of_value(path: Path) -> None:
    frames = read_frames(path)
    tags = Counter(chr(frame[25]) for frame in frames if frame[:1] == b"w")
    assert set("BCORYIUDTM") <= set(tags)
    items = plain_items(frames)
    changes = [item for item in items if item[0] == "change"]
    assert {item[3] for item in changes} == {1, 2, 3, 4}
    assert {(item[3], chr(item[8])) for item in changes if item[8]} == {(2, "K"), (2, "O"), (3, "K"), (3, "O")}
    relations = [item[1] for item in items if item[0] == "relation"]
    assert {relation.replica_identity for relation in relations} == set("dnfi")
    assert max(relation.version for relation in relations) >= 5
    assert max(len(relation.columns) for relation in relations) == 1600
    assert "public.mood" in {column.type_name for relation in relations for column in relation.columns}
    assert any(NOT_SENT in (item[6] or ()) for item in changes if item[3] == 2)
    assert any(len(item[3]) > 1 for item in items if item[0] == "truncate")
    assert [item[4] for item in items if item[0] == "begin" and item[4]] == ["elsewhere"]
    assert {item[4] for item in items if item[0] == "message"} == {True, False}


@RECORDED
def test_a_second_connection_describes_nothing_new(path: Path) -> None:
    frames, relations = read_frames(path), Relations()
    described = frames[: next(at for at, frame in enumerate(frames) if b"Rchanging" in frame or b"changing\0" in frame)]
    first = decoded(described, 50, relations)
    again = decoded(described, 50, relations)
    assert [item for item in first if item[0] != "relation"] == again


@RECORDED
def test_fragments_of_a_real_stream_know_their_ends(path: Path) -> None:
    decoder = Decoder(Relations(), fragment_changes_max=3)
    ends: list[LogOffset] = []
    for event in decoder.feed(CopyBatch.join(read_frames(path))):
        if isinstance(event, Fragment):
            ends += [event.aligned_offset(index) for index in range(event.ended_count)]
    changes = {item[1]: item[3] for item in plain_items(read_frames(path)) if item[0] == "commit"}
    assert ends == [LogOffset.aligned(tx, count) for tx, count in changes.items()]
    assert not decoder.in_transaction
