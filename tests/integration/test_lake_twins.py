"""Two writers of one lake, one of which gets further between any two steps of the other: nobody's files go or stay."""

from pathlib import Path
from typing import Any

import pytest

from storage.disk import LocalDisk
from storage.lake import views
from storage.lake.delta_log import Committed, DeltaLog
from storage.lake.errors import PathTaken
from tests.bank import COLUMNS
from tests.lakes import Lakes


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path, accounts=20)


@pytest.mark.parametrize("table", ["checking", "savings"])
@pytest.mark.parametrize("side", ["changes", "state"])
def test_a_twin_replaces_files_right_behind_a_commit(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, table: str, side: str
) -> None:
    """They are still those of the version that the slower one has just committed."""
    bank = lakes.bank
    bank.confirm()
    lakes.writer().step()
    bank.play(20)
    bank.confirm()
    twin, slow, commit = lakes.writer(), lakes.writer(), DeltaLog.commit

    def overtaken(log: DeltaLog, *arguments: Any, after: int) -> Committed:
        done = commit(log, *arguments, after=after)
        if log.folder.parts[-3:] == (table, "1", side):
            monkeypatch.setattr(DeltaLog, "commit", commit)
            assert twin.step().version is not None
            bank.play(20)
            bank.confirm()
            assert twin.step().version is not None
        return done

    monkeypatch.setattr(DeltaLog, "commit", overtaken)
    slow.step()
    lakes.writer().show()
    assert lakes.latest().number == 3
    lakes.check_all()


@pytest.mark.parametrize("happens", ["nothing", "G moves"])
@pytest.mark.parametrize("deed", ["shows", "shows what is gone", "hides"])
def test_a_slow_twin_dies_right_behind_an_older_view(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, deed: str, happens: str
) -> None:
    """Nothing changes for long; the other one sees it all the same."""
    bank = lakes.bank
    if deed == "hides":
        old = bank.end_table("savings", "removed")
    bank.confirm()
    lakes.writer().step()
    bank.play(20)
    if deed == "shows what is gone":
        bank.end_table("savings", "removed")
    if deed == "hides":
        bank.succeed_table("savings", old, COLUMNS, bank.accounts("savings", 5))
    bank.confirm()
    slow, twin = lakes.writer(), lakes.writer()
    act = views.hide_view if deed == "hides" else views.show_view
    with monkeypatch.context() as patch:

        def dies(*arguments: Any) -> None:
            patch.setattr(views, act.__name__, act)
            twin.step()
            act(*arguments)
            raise KeyboardInterrupt

        (lakes.root / "tables/savings").mkdir(exist_ok=True)
        (lakes.root / "tables/savings/state").unlink(missing_ok=True)
        patch.setattr(views, act.__name__, dies)
        with pytest.raises(KeyboardInterrupt):
            slow.show()
    if happens == "G moves":
        bank.confirm()
    assert twin.step().version is None
    version = lakes.latest()
    for name in ("checking", "savings"):
        shown = lakes.root / "tables" / name / "state"
        table = version.facts.table(name)
        assert views.shown_cut(lakes.root, name, "state") == (0 if table is None else table.state and table.state.cut)
        assert shown.exists() == (table is not None)


@pytest.mark.parametrize("taken", ["tables/savings/state", "tables/savings"])
def test_what_somebody_put_where_a_link_belongs_is_not_touched(lakes: Lakes, taken: str) -> None:
    """A copy that follows links leaves folders; and it is said what to do, at each step until that is done."""
    bank, writer = lakes.bank, lakes.writer()
    bank.confirm()
    writer.step()
    bank.play(20)
    bank.confirm()
    path = lakes.root / taken
    path.rename(lakes.root.parent / "before")
    if taken.endswith("state"):
        path.mkdir()
        (path / "theirs").write_text("rows")
    else:
        path.write_text("rows")
    for _ in range(2):
        with pytest.raises(PathTaken, match=taken):
            writer.step()
        bank.play(20)
        bank.confirm()
    assert lakes.latest().number == 2, "it is complete, and no other is made"
    assert (path / "theirs" if path.is_dir() else path).read_text() == "rows"
    path.rename(lakes.root.parent / "moved")
    writer.step()
    assert views.shown_cut(lakes.root, "savings", "state") == 3
    lakes.check_all()


@pytest.mark.parametrize("taken", ["tables", "tables/savings"])
@pytest.mark.parametrize("leads_nowhere", [False, True], ids=["a file", "a link that leads nowhere"])
def test_what_is_in_the_way_of_the_folders_of_links_is_said(tmp_path: Path, taken: str, leads_nowhere: bool) -> None:
    """Somebody moved them to another disk, and that is away."""
    path = tmp_path / taken
    path.parent.mkdir(exist_ok=True)
    if leads_nowhere:
        path.symlink_to("away")
    else:
        path.write_text("rows")
    with pytest.raises(PathTaken, match=f"{path}\\b"):
        views.show_view(tmp_path, "savings", "state", 3, "w1")
    assert path.is_symlink() == leads_nowhere


@pytest.mark.parametrize("name", ["tables/.DS_Store", "tables/theirs/state/rows", "tables/theirs.txt"])
def test_what_lies_beside_the_links_is_nobodys_concern(lakes: Lakes, name: str) -> None:
    bank = lakes.bank
    bank.confirm()
    writer = lakes.writer()
    writer.step()
    path = lakes.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("rows")
    for _ in range(2):
        bank.play(20)
        bank.confirm()
        writer.step()
        assert writer.step().version is None
    lakes.check_all()
    assert path.read_text() == "rows"


@pytest.mark.parametrize("lead", [1, 2])
def test_what_was_written_in_vain_goes_at_once(lakes: Lakes, lead: int) -> None:
    bank = lakes.bank
    bank.confirm()
    lakes.writer().step()
    bank.play(20)
    bank.confirm()
    twin = lakes.writer()
    known: set[str] = set()

    def overtaken(where: str) -> None:
        if where == "before the commits":
            known.update(lakes.files_on_disk())
            for _ in range(lead):
                twin.step()
                bank.play(20)
                bank.confirm()

    lakes.writer(overtaken).step()
    assert lakes.latest().number == 1 + lead
    lakes.check_all()
    before = {path for version in (1, 2) for path in files_of(lakes, version)}
    in_vain = known - before - {path.name for path in loaded(lakes)}
    assert in_vain, "the slower one had written something"
    assert not in_vain & lakes.files_on_disk()


def test_a_twin_that_is_faster_by_a_moment_has_done_one_table(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks of the slower one, which goes on with the others: what it wrote for them is of use."""
    bank = lakes.bank
    bank.confirm()
    lakes.writer().step()
    bank.play(20)
    bank.confirm()

    def dies(where: str) -> None:
        if where == "after a commit":
            raise KeyboardInterrupt

    twin, adopted, looks = lakes.writer(dies), DeltaLog.adopted, list[int]()

    def overtaken(log: DeltaLog, cut: int) -> Committed | None:
        found = adopted(log, cut)
        assert found is None
        looks.append(cut)
        if len(looks) == 2:  # the last one before it commits
            monkeypatch.setattr(DeltaLog, "adopted", adopted)
            with pytest.raises(KeyboardInterrupt):
                twin.step()
        return found

    def at(where: str) -> None:
        if where == "before the commits":
            monkeypatch.setattr(DeltaLog, "adopted", overtaken)

    assert lakes.writer(at).step().version is not None
    assert lakes.latest().number == 2
    assert len(looks) == 2
    lakes.check_all()


def files_of(lakes: Lakes, number: int) -> set[str]:
    version = lakes.lake().version(number)
    return {
        Path(path).name
        for name in version.tables
        for side in ("state", "changes")
        for path in version.table(name).files(side)
    }


def loaded(lakes: Lakes) -> set[Path]:
    """Files of the bases, which a load names."""
    return set((lakes.root / "delta").rglob("state/000000000000-*.parquet"))


def test_a_twin_that_is_further_has_loaded_what_a_slow_one_comes_to(lakes: Lakes) -> None:
    """At a G that the slow one has not seen: the load is no other folder's for that, and stays on record."""
    twin = lakes.writer()
    before = dict[Path, bytes]()

    def at(where: str) -> None:
        if where == "before a load" and not before:
            lakes.bank.play(10)
            lakes.bank.confirm()
            twin.step()
            before.update({path: path.read_bytes() for path in (lakes.root / "loads").glob("*.json")})

    lakes.bank.confirm()
    lakes.writer(at).step()
    assert len(before) == 2
    assert {path: path.read_bytes() for path in (lakes.root / "loads").glob("*.json")} == before
    lakes.bank.play(10)
    lakes.bank.confirm()
    lakes.writer().step()
    lakes.check_all()


@pytest.mark.parametrize(
    ("folder", "point"), [("loads", "before the cut"), ("cuts", "before the work"), ("versions", "before the cut")]
)
def test_a_record_whose_maker_died_before_it_was_synced_is_synced_before_it_is_relied_on(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, folder: str, point: str
) -> None:
    """Else a power cut could take a version away whose successor's commits are in the tables."""
    sync, is_dead, done = LocalDisk.sync_folder, list[bool](), list[str]()

    def noted(disk: LocalDisk, path: str) -> None:
        if path == folder and not is_dead:
            is_dead.append(True)
            raise KeyboardInterrupt
        done.append(path)
        sync(disk, path)

    lakes.bank.confirm()
    monkeypatch.setattr(LocalDisk, "sync_folder", noted)
    with pytest.raises(KeyboardInterrupt):
        lakes.writer().step()
    lakes.bank.play(5)
    lakes.bank.confirm()
    done.clear()
    known = list[str]()
    lakes.writer(lambda where: known.extend(done) if where == point and not known else None).step()
    assert folder in known
    lakes.check_all()
