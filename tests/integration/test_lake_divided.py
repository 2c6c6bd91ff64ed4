"""Cuts so large that a log is read in pieces and a state is merged in ranges: they come to the same."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from storage.lake.state import shares
from storage.lake.tasks import Done, ReadPiece, Work, run
from storage.lake.writer import LakeWriter
from storage.rows import Kind
from tests.bank import Row
from tests.lakes import Lakes


@pytest.fixture
def lakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakes:
    """A cut of a few rows is as many pieces of a log, and ranges of keys, as one of millions."""
    for module in ("state", "state_files", "loads", "tasks"):
        monkeypatch.setattr(f"storage.lake.{module}.STATE_FILE_ROWS", 16, raising=False)
    monkeypatch.setattr("storage.lake.table_step.shares", partial(shares, rows_max=16))
    monkeypatch.setattr("storage.lake.table_step.SAMPLE_ROWS", 2)
    monkeypatch.setattr("storage.lake.tasks.SAMPLE_ROWS", 2)
    monkeypatch.setattr("storage.lake.loads.SAMPLE_ROWS", 2)
    monkeypatch.setattr("storage.lake.tasks.INLINE_REWRITES_MAX", 1)
    monkeypatch.setattr("storage.lake.pieces.pieces.__defaults__", (700,))
    made = Lakes(tmp_path)
    made.end_segments(1)  # what is in a journal is one piece
    return made


def most_pieces(writer: LakeWriter) -> int:
    """Take a step; the most pieces of a log that one of its tables had."""
    found = Counter[str]()

    def counted(work: Sequence[Work]) -> list[Done]:
        found.update(one.table.name for one in work if isinstance(one, ReadPiece))
        return [run(one) for one in work]

    writer._run = writer._next._run = counted
    assert writer.step().version is not None
    return max(found.values())


def test_large_cuts_are_divided_and_come_to_the_same(lakes: Lakes) -> None:
    """Several pieces of a log, staged rows, many state files, loads in ranges."""
    bank = lakes.bank
    bank.open_table("mixed", dict(sorted(bank.accounts("mixed", 150).items())))
    for _ in range(3):
        for _ in range(6):
            bank.play(12)
            bank.store.flush_all()
        bank.confirm()
        assert most_pieces(lakes.writer()) > 2
    lakes.check_all()
    assert len(lakes.latest().table("mixed").files()) > 5


@pytest.mark.parametrize("empties", [1, 2])
def test_a_table_that_is_emptied_in_a_large_cut_has_what_came_behind_that(lakes: Lakes, empties: int) -> None:
    """Pieces before and behind it are staged; for some ranges, more rows than are folded at once."""
    bank, pieces = lakes.bank, 36
    bank.confirm()
    lakes.writer().step()
    for _ in range(empties):
        bank.play(12)
        bank.store.flush_all()
        put: list[tuple[str, Kind, Row | None]] = [
            ("savings", Kind.INSERT, bank.account("savings", str(key))) for key in range(40, 50)
        ]
        bank.commit(("savings", Kind.TRUNCATE, None), *put)
        for number in range(pieces):
            bank.store.flush_all()
            changes: list[tuple[str, Kind, Row | None]] = [
                ("savings", Kind.UPDATE, {"id": str(key), "note": f"{number} " + "x" * 100}) for key in range(41, 49)
            ]
            bank.commit(*changes)
        bank.store.flush_all()
        bank.commit(("savings", Kind.DELETE, {"id": "41"}))
    bank.confirm()
    assert most_pieces(lakes.writer()) > pieces * empties
    lakes.check_all()
