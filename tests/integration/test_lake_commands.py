"""`shapelog lake`, as a user runs it, on a lake that was made here."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from cdc.cli import main
from storage.lake.errors import NoVersion
from storage.lake.lake_reader import Lake, open_lake
from storage.lake.spark import run_here
from storage.progress import Incarnation
from tests.bank import Bank
from tests.lakes import Lakes


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    made = Lakes(tmp_path, accounts=10)
    writer = made.writer()
    for _ in range(3):
        made.bank.play(5)
        made.bank.confirm()
        writer.step(even_if_quiet=True)
    return made


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def facts(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    status, out, err = answer(capsys, *arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_versions_tables_and_files(lakes: Lakes, capsys: pytest.CaptureFixture[str]) -> None:
    versions = facts(capsys, "lake", "versions", lakes.root)
    assert [one["version"] for one in versions] == [3, 2, 1]
    shown = facts(capsys, "lake", "show", lakes.root, "--as-of", versions[1]["lsn"])
    assert [one["table"] for one in shown] == ["checking", "savings"]
    lsn = lakes.latest().lsn
    newest = facts(capsys, "lake", "show", lakes.root)
    assert [one["state rows"] for one in newest] == [len(rows) for _, rows in sorted(lakes.bank.history[lsn].items())]
    files = facts(capsys, "lake", "files", lakes.root, "savings", "--side", "changes", "--version", 3)
    assert files
    assert all(Path(path).is_file() for path in files)
    status, out, _ = answer(capsys, "lake", "versions", lakes.root)
    assert status == 0
    assert out.splitlines()[0].split() == ["version", "lsn", "committed", "tables"]


def test_before_the_first_version_it_is_said_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get an empty list."""

    def stop(where: str) -> None:
        if where == "before the work":
            raise KeyboardInterrupt

    lakes = Lakes(tmp_path, accounts=3)
    with pytest.raises(NoVersion) as caught:
        settle_only(lakes).latest()
    assert "shapelog lake versions" in caught.value.hint
    status, out, err = answer(capsys, "lake", "versions", lakes.root)
    assert (status, out, err.count("\n")) == (0, "", 1)
    assert f"`shapelog materialize --data-dir DIR --lake {lakes.root} --once` makes one" in err
    assert facts(capsys, "lake", "versions", lakes.root) == []
    lakes.bank.confirm()
    with pytest.raises(KeyboardInterrupt):
        lakes.writer(stop).step()
    assert "finishes it" in answer(capsys, "lake", "versions", lakes.root)[2]
    for name in ("checking", "savings"):
        lakes.bank.end_table(name, "removed")
    lakes.bank.confirm()
    for _ in range(2):
        lakes.writer().step()
    status, out, err = answer(capsys, "lake", "show", lakes.root)
    assert (status, out) == (0, "")
    assert "version 2 has no tables" in err


def settle_only(lakes: Lakes) -> Lake:
    """A lake that somebody has begun, and no more."""
    lakes.writer()
    return open_lake(lakes.root)


def test_show_tells_programs_what_is_safe(lakes: Lakes, capsys: pytest.CaptureFixture[str]) -> None:
    version = lakes.latest()
    safe = facts(capsys, "lake", "versions", lakes.root)[0]["lsn"]
    shown = {one["table"]: one for one in facts(capsys, "lake", "show", lakes.root)}
    assert {one["safe below"] for one in shown.values()} == {safe}
    assert [shown[name]["gaps"] for name in shown] == [0, 0]
    before = shown["savings"]["orphan files"]
    folder = Path(version.table("savings").files()[0]).parent
    (folder / "nobodys.parquet").write_bytes(b"")
    Path(version.table("checking").files()[0]).unlink()
    shown = {one["table"]: one for one in facts(capsys, "lake", "show", lakes.root)}
    assert shown["savings"]["orphan files"] == before + 1
    assert (shown["savings"]["safe below"], shown["checking"]["safe below"]) == (safe, None)
    assert len(shown["checking"]["missing files"]) == 1
    status, _, err = answer(capsys, "lake", "read", lakes.root, "checking")
    assert (status, "are gone" in err) == (2, True)


def test_rows_are_read_and_exported(lakes: Lakes, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    version = lakes.latest()
    expected = lakes.bank.history[version.lsn]["savings"]
    status, out, _ = answer(capsys, "lake", "read", lakes.root, "savings", "--limit", 4, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, len(rows)) == (0, 4)
    assert [row["balance"] for row in rows] == [expected[str(row["id"])]["balance"] for row in rows]
    status, out, _ = answer(capsys, "lake", "read", lakes.root, "savings", "--side", "changes", "--limit", 2)
    assert (status, out.splitlines()[0].split()[:2], len(out.splitlines())) == (0, ["_tx", "_op"], 3)
    for suffix, read in (("parquet", pl.read_parquet), ("csv", pl.read_csv), ("jsonl", pl.read_ndjson)):
        target = tmp_path / f"savings.{suffix}"
        assert facts(capsys, "lake", "export", lakes.root, "savings", "--to", target)["rows"] == len(expected)
        assert sorted(read(target)["id"].to_list()) == sorted(map(int, expected)), suffix
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_vacuum_says_what_went(lakes: Lakes, capsys: pytest.CaptureFixture[str]) -> None:
    assert facts(capsys, "lake", "vacuum", lakes.root, "--keep", 1)["versions"] == 0, "they are all young"
    lakes.check_all()


def test_compact_joins_small_files(lakes: Lakes, capsys: pytest.CaptureFixture[str]) -> None:
    before = lakes.latest()
    assert len(before.table("savings").files("changes")) > 1
    told = facts(capsys, "lake", "compact", lakes.root, "--data-dir", lakes.data)
    after = lakes.latest()
    assert (told["version"], told["files_after"]) == (after.number, 4) == (4, 4)
    assert told["files_before"] > 4
    assert after.lsn == before.lsn
    lakes.check_all()
    status, out, _ = answer(capsys, "lake", "compact", lakes.root, "--data-dir", lakes.data)
    assert (status, out.split(";")[0]) == (0, "version 5: 4 files became 4")
    lakes.bank.play(5)
    lakes.bank.confirm()
    lakes.writer().step()
    lakes.check_all()


def test_the_folder_is_a_setting(
    lakes: Lakes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A flag goes before a variable, and a variable before the file; an argument before all of them."""
    wanted = facts(capsys, "lake", "files", lakes.root, "savings")
    assert facts(capsys, "lake", "files", "savings", "--lake", lakes.root) == wanted
    file = tmp_path / "shapelog.toml"
    file.write_text(f'lake = "{lakes.root}"\ndata-dir = "{lakes.data}"\n')
    assert facts(capsys, "--config", file, "lake", "files", "savings") == wanted
    assert facts(capsys, "--config", file, "lake", "compact")["version"] == 4
    monkeypatch.setenv("SHAPELOG_LAKE", str(tmp_path / "elsewhere"))
    status, _, err = answer(capsys, "--config", file, "lake", "versions")
    assert (status, "not_a_lake" in err) == (2, True)
    assert len(facts(capsys, "lake", "versions", "--lake", lakes.root)) == 4
    assert len(facts(capsys, "lake", "versions", lakes.root)) == 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["files"], "name the table"),
        (["export", "savings"], "--to FILE"),
        (["export", "savings", "--to", "savings.doc"], ".parquet, .csv, .jsonl"),
        (["export", "savings", "--to", "/"], ".parquet, .csv, .jsonl"),
        (["export", "savings", "--to", "no/where.csv"], "is not there"),
        (["read", "savings", "--version", "99"], "no_version"),
        (["files", "nobody"], "no_table"),
        (["files", "savings", "--side", "inside"], "no_table"),
        (["show", "--version", "99"], "no_version"),
        (["show", "--as-of", "0/1"], "[no_version] no version is as old as the LSN 0/1 "),
        (["show", "--as-of", "yesterday"], "neither an LSN"),
        (["show", "--as-of", "0/1", "--version", "1"], "choose"),
        (["compact", "--version", "1"], "nothing to `lake compact`: it is for show, files, read, export"),
        (["vacuum", "--as-of", "0/1"], "--as-of means nothing to `lake vacuum`"),
        (["versions", "--keep", "100"], "it is for vacuum"),
        (["files", "savings", "--limit", "3"], "it is for read"),
        (["read", "savings", "--to", "x.csv"], "it is for export"),
        (["show", "--side", "state"], "it is for files, read, export"),
        (["compact", "savings"], "TABLE means nothing to `lake compact`: it is for files, read, export"),
        (["show", "savings"], "TABLE means nothing to `lake show`"),
    ],
)
def test_mistakes_are_told_in_one_line(
    lakes: Lakes, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    action, *rest = arguments
    status, _, err = answer(capsys, "lake", action, lakes.root, *rest)
    assert status == 2
    assert complaint in err
    assert err.count("\n") == 1


def test_a_folder_that_is_no_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = answer(capsys, "lake", "versions", tmp_path)
    assert status == 2
    assert "not_a_lake" in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "--once, or --every"),
        (["--once", "--every", "5"], "--once, or --every"),
        (["--once", "--conf", "x"], "KEY=VALUE"),
        (["--once"], "nothing was confirmed"),
        (["--once", "--metrics-port", "70000"], "--metrics-port"),
    ],
)
def test_materialize_refuses_before_it_starts_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    status, _, err = answer(capsys, "materialize", "--data-dir", tmp_path, "--lake", tmp_path / "lake", *arguments)
    assert status == 2
    assert complaint in err


@pytest.mark.parametrize(
    ("data", "lake", "option", "complaint"),
    [
        ("data", "file", "--json", "[not_a_lake] the lake's folder is a file"),
        ("data", "file/lake", "--json", "Not a directory"),
        ("nothing", "new", "--json", "[lake_no_data_folder] this is no folder at all"),
        ("file", "new", "--json", "[lake_no_data_folder] this is a file"),
        ("lake", "new", "--json", "[lake_no_data_folder] this is no data folder"),
        ("data", "lake", "--state-only", "[other_lake_settings]"),
        ("data", "lake", "--shape=savings", "[other_lake_settings]"),
    ],
)
def test_folders_that_will_not_do_are_told_before_spark_starts(
    lakes: Lakes,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    data: str,
    lake: str,
    option: str,
    complaint: str,
) -> None:
    home = lakes.root.parent
    (home / "file").write_text("x")
    monkeypatch.setattr("storage.lake.spark.open_session", lambda *_: None)
    monkeypatch.setattr("storage.lake.spark.runner_of", lambda *_: None)
    monkeypatch.setattr("storage.lake.spark.close_session", lambda *_: None)
    folders = ["--data-dir", home / data, "--lake", home / lake]
    status, out, err = answer(capsys, "materialize", *folders, "--once", option)
    assert (status, out) == (2, "")
    assert complaint in err
    assert not (home / "new").exists()


def test_a_folder_without_named_shapes_is_told_apart_from_one_without_news(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "storage.lake.spark.open_session", lambda *_: SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=None))
    )
    monkeypatch.setattr("storage.lake.spark.runner_of", lambda *_: run_here)
    monkeypatch.setattr("storage.lake.spark.close_session", lambda *_: None)
    (tmp_path / "data").mkdir()
    bank = Bank(tmp_path / "data")
    bank.confirm()
    command = ["materialize", "--data-dir", tmp_path / "data", "--lake", tmp_path / "lake", "--once"]
    status, out, _ = answer(capsys, *command)
    assert (status, out.startswith("nothing yet"), "shapes add" in out) == (0, True, True)
    bank.open_table("savings", {})
    bank.confirm()
    assert answer(capsys, *command)[1].startswith("version 1 ")
    assert answer(capsys, *command)[1].strip() == "nothing new"


def test_a_table_without_rows_shows_its_columns_and_has_no_files(
    lakes: Lakes, capsys: pytest.CaptureFixture[str]
) -> None:
    lakes.bank.open_table("empty", {})
    lakes.bank.confirm()
    lakes.writer().step()
    status, out, err = answer(capsys, "lake", "read", lakes.root, "empty")
    assert (status, err) == (0, "")
    assert out.split() == ["id", "owner", "balance", "opened", "note", "_quarantined"]
    status, out, err = answer(capsys, "lake", "files", lakes.root, "empty")
    assert (status, out, "no files: state of 'empty' has no rows" in err) == (0, "", True)


def test_a_lake_of_another_folder_is_refused_before_spark_starts(
    lakes: Lakes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr("storage.lake.spark.open_session", never)
    other = tmp_path / "other"
    other.mkdir()
    bank = Bank(other)
    bank.incarnation = Incarnation(7, 1, 2)
    bank.open_table("savings", {})
    bank.confirm()
    options = ["--data-dir", other, "--lake", lakes.root]
    for command in (["materialize", *options, "--once"], ["lake", "compact", *options]):
        status, out, err = answer(capsys, *command)
        assert (status, out) == (2, "")
        assert "[other_data_folder]" in err
        assert "--adopt" in err
    with pytest.raises(AssertionError, match="Spark is started"):
        main([str(one) for one in ("materialize", *options, "--once", "--adopt")])
