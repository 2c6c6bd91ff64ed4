"""What `materialize` refuses before any work: names of shapes that are not there, folders that lie in each other."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.cli import main
from storage.lake.errors import MixedFolders, UnknownShape
from storage.lake.limits import SHAPES_TOLD_MAX
from storage.lake.materialize import Order, Told, check_order, materialize
from storage.lake.refusals import unknown_shape
from storage.lake.spark import run_here
from tests.lakes import Lakes


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    made = Lakes(tmp_path, accounts=5)
    made.root.rmdir()
    made.bank.confirm()
    return made


def run(order: Order) -> list[Told]:
    told = list[Told]()
    materialize(order, run_here, told.append)
    return told


def test_a_mistyped_shape_makes_no_lake(lakes: Lakes, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--data-dir", str(lakes.data), "--lake", str(lakes.root)]
    with pytest.raises(SystemExit) as ended:
        main(["materialize", *folders, "--shape", "checking", "--shape", "savigns", "--once"])
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert "[lake_unknown_shape]" in err
    assert "'savigns'; did you mean 'savings'?" in err
    assert "shapes=['checking', 'savings']" in err
    assert "shapelog shapes add" in err
    assert not lakes.root.exists(), "the choice would stay for ever"


def test_an_order_that_follows_does_not_wait_for_a_name_either(lakes: Lakes) -> None:
    with pytest.raises(UnknownShape):
        check_order(Order(lakes.data, lakes.root, ("third",), every_seconds=0.1))
    lakes.bank.open_table("third", lakes.bank.accounts("third", 3))
    check_order(Order(lakes.data, lakes.root, ("third",), every_seconds=0.1))


def test_a_lake_whose_shape_was_removed_goes_on_with_its_option(lakes: Lakes) -> None:
    """A name that the lake has had a table of is no mistake; one that it never had is, also in its choice."""
    order = Order(lakes.data, lakes.root, ("checking", "savings"))
    assert run(order)
    lakes.bank.end_table("savings", "removed")
    lakes.bank.confirm()
    told = run(order)
    assert told[-1].step.version is not None
    assert [table.name for table in told[-1].step.version.tables] == ["checking"]
    with pytest.raises(UnknownShape):
        check_order(Order(lakes.data, lakes.root, ("checking", "savings", "../..")))


def test_a_lake_with_a_mistyped_choice_says_so_when_it_is_named_again(lakes: Lakes) -> None:
    assert run(Order(lakes.data, lakes.root, ("checking",)))
    file = lakes.root / "lake.json"
    assert b"checking" in file.read_bytes()
    with pytest.raises(UnknownShape, match="'chekcing'; did you mean 'checking'"):
        run(Order(lakes.data, lakes.root, ("chekcing",)))


def test_a_shape_that_waits_for_its_successor_is_there(lakes: Lakes) -> None:
    lakes.bank.end_table("savings", "altered")
    check_order(Order(lakes.data, lakes.root, ("savings",)))
    lakes.bank.end_table("checking", "removed")
    with pytest.raises(UnknownShape):
        check_order(Order(lakes.data, lakes.root, ("checking",)))


PLACES: dict[str, Callable[[Path], Path]] = {
    "is the data folder itself": lambda data: data,
    "lies inside the data folder": lambda data: data / "lakes" / "one",
    "the data folder lies inside": lambda data: data.parent,
}


@pytest.mark.parametrize("words", PLACES)
def test_folders_that_lie_in_each_other_are_refused(
    lakes: Lakes,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """However they are named: from here, with links on the way."""
    data, place = lakes.data, PLACES[words](lakes.data)
    before = sorted(data.parent.rglob("*"))
    linked = tmp_path_factory.mktemp("links") / "link"
    linked.symlink_to(place)
    monkeypatch.chdir(data.parent)
    for named in (place, linked, Path(os.path.relpath(place))):
        with pytest.raises(MixedFolders, match=words) as caught:
            check_order(Order(Path("data"), named))
        assert caught.value.facts == {"lake": str(place), "data_dir": str(data)}
    with pytest.raises(SystemExit) as ended:
        main(["materialize", "--data-dir", "data", "--lake", str(place), "--once", "--json"])
    assert (ended.value.code, "[lake_mixed_folders]" in capsys.readouterr().err) == (2, True)
    assert sorted(data.parent.rglob("*")) == before


@pytest.mark.parametrize("name", ["delta/2026/05/rows.parquet", "cuts", "notes.txt"])
def test_no_lake_is_made_among_files_of_others(lakes: Lakes, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What lay where a lake has its files was taken for a lake's, and removed when it was a day old."""
    path = lakes.root / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(SystemExit) as ended:
        main(["materialize", "--data-dir", str(lakes.data), "--lake", str(lakes.root), "--once"])
    err = capsys.readouterr().err
    assert (ended.value.code, err.count("\n")) == (2, 1)
    assert "[not_a_lake] the folder has files, and no lake" in err
    assert name.partition("/")[0] in err
    assert "empty folder" in err
    assert [one for one in lakes.root.rglob("*") if one.is_file()] == [path]


def test_a_lake_is_made_in_a_folder_that_is_as_good_as_empty(lakes: Lakes) -> None:
    """A disk that was mounted there, a mark for git, what a writer left that died in its first moment."""
    for name in ("lost+found", ".git/objects", "lake.json.12-ab.tmp"):
        (lakes.root / name).mkdir(parents=True)
    assert run(Order(lakes.data, lakes.root))
    lakes.check()
    assert run(Order(lakes.data, lakes.root)), "and found again"


def test_folders_with_alike_names_lie_side_by_side(lakes: Lakes) -> None:
    check_order(Order(lakes.data, lakes.data.with_name("data-lake")))
    check_order(Order(lakes.data, lakes.data.parent / "da"))


@given(st.text(max_size=5), st.sets(st.text(min_size=1, max_size=3), max_size=3 * SHAPES_TOLD_MAX))
def test_an_error_about_a_name_is_a_line(name: str, known: set[str]) -> None:
    error = unknown_shape("there is none", name, known)
    facts = error.facts
    assert len(facts["shapes"]) <= SHAPES_TOLD_MAX
    assert {*facts["shapes"]} <= known
    assert len(facts["shapes"]) + facts.get("and_more", 0) == len(known)
    assert json.dumps(facts)
