"""`lake compact` beside all else: writers that follow or die, readers, and logs that went on without the lake."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from storage.lake.lake_reader import open_lake
from storage.lake.writer import Step
from tests.integration.test_lake_folded import AWAY, Killed, compacted, folded
from tests.lakes import POINTS, Lakes

SIDES = pytest.mark.parametrize("state_only", [False, True])
WORK = POINTS[4:]
"""The points that a writer comes by when there is nothing to load or to decide."""


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    """A lake with files that are small enough to be joined; every flush ends a segment of the log."""
    made = Lakes(tmp_path, accounts=200)
    made.end_segments(400)
    return made


def grow(lakes: Lakes, versions: int = 1, *, state_only: bool = False) -> None:
    for _ in range(versions):
        play(lakes)
        lakes.writer(state_only=state_only).step()


def play(lakes: Lakes, times: int = 20) -> None:
    lakes.bank.play(times)
    lakes.bank.store.flush_all()
    lakes.bank.confirm()


class Paused:
    """A writer on a thread of its own, which waits at a point until it is told to go on."""

    def __init__(self, lakes: Lakes, point: str, do: Callable[..., Step]) -> None:
        self._point, self._there, self._go = point, Event(), Event()
        self.failure: BaseException | None = None
        self.step: Step | None = None
        writer = lakes.writer(self._at)
        self._thread = Thread(target=self._run, args=(do, writer), daemon=True)
        self._thread.start()
        assert self._there.wait(60)

    def _at(self, where: str) -> None:
        if where == self._point and not self._there.is_set():
            self._there.set()
            assert self._go.wait(60)

    def _run(self, do: Callable[..., Step], writer: object) -> None:
        try:
            self.step = do(writer)
        except BaseException as error:  # noqa: BLE001 - it is looked at by whoever waits
            self.failure = error
        finally:
            self._there.set()

    def go_on(self) -> None:
        self._go.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure


@SIDES
@pytest.mark.parametrize("point", WORK)
def test_a_writer_that_follows_overtakes_a_compaction(lakes: Lakes, state_only: bool, point: str) -> None:
    grow(lakes, 4, state_only=state_only)
    twin = lakes.writer()

    def at(where: str) -> None:
        if where == point:
            play(lakes)
            twin.step()
            twin.step()

    lakes.writer(at).compact()
    grow(lakes, 2)
    lakes.check_all()


@SIDES
@pytest.mark.parametrize("point", ["before the work", "before the commits", "after a commit"])
def test_a_compaction_comes_while_the_next_cut_is_worked(lakes: Lakes, state_only: bool, point: str) -> None:
    """A slow one commits what it joined while another has read the same files, and is about to write them anew."""
    grow(lakes, 8, state_only=state_only)  # so many that both join them
    slow = Paused(lakes, point, lambda writer: writer.compact())
    lakes.writer().step()
    play(lakes)
    follower = Paused(lakes, "before the commits", lambda writer: writer.step())
    slow.go_on()
    follower.go_on()
    grow(lakes, 2)
    lakes.check_all()


@SIDES
@pytest.mark.parametrize("point", ["after the cut", "before the work", "before the commits", "after a commit"])
def test_a_compaction_that_died_is_finished(lakes: Lakes, state_only: bool, point: str) -> None:
    """By whoever comes next, and as what it was: its files are joined."""

    def kill(where: str) -> None:
        if where == point:
            raise Killed

    grow(lakes, 4, state_only=state_only)
    with pytest.raises(Killed):
        lakes.writer(kill).compact()
    play(lakes)
    version = lakes.writer().step().version
    assert version is not None
    joined = open_lake(lakes.root).version(version.number)
    for name in joined.tables:
        for side in ("state",) if state_only else ("state", "changes"):
            assert len(joined.table(name).files(side)) == 1
    lakes.check_all()


def test_a_cut_that_is_open_is_finished_before_the_compaction(lakes: Lakes) -> None:
    def kill(where: str) -> None:
        if where == "after the cut":
            raise Killed

    grow(lakes, 4)
    play(lakes)
    with pytest.raises(Killed):
        lakes.writer(kill).step()
    version = lakes.writer().compact().version
    assert version is not None
    assert (version.number, len(lakes.latest().table("savings").files("changes"))) == (6, 1)
    lakes.check_all()


@SIDES
@pytest.mark.parametrize("shortened", [compacted, folded])
def test_a_log_that_went_on_without_the_lake_does_not_matter(
    lakes: Lakes, state_only: bool, shortened: Callable[..., bool]
) -> None:
    """A compaction has the rows of the version before, and those are in the lake."""
    grow(lakes, 3, state_only=state_only)
    for _ in range(4):
        play(lakes)
    assert shortened(lakes, AWAY, "savings")
    lakes.bank.confirm()
    version = lakes.writer().compact().version
    assert version is not None
    assert [table.name for table in version.tables] == ["checking", "savings"]
    lakes.check_all()


def test_a_version_that_is_read_stays_readable(lakes: Lakes) -> None:
    """A compaction takes nothing away."""
    grow(lakes, 4)
    read = lakes.latest()
    files = [path for name in read.tables for path in read.table(name).files("changes")]
    lakes.writer().compact()
    grow(lakes)
    assert all(Path(path).exists() for path in files)
    lakes.check(read)
