"""The commands: what they print, as text and as JSON, and that every mistake gets one clear line and its exit code."""

import errno
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson
import pyarrow as pa
import pytest
import typer

from cdc.cli import app, main
from cdc.output import console
from storage.disk import LocalDisk, folder_of
from storage.offset import SNAPSHOT_END, LogOffset
from storage.progress import Incarnation, ProgressLog, ProgressRecord
from storage.retention import RetentionPolicy, fold_prefix, retire
from storage.rows import Kind, row_schema
from tests.unit.builders import COLUMNS, Rig, rows, to_journal, to_segments
from tests.unit.keyed import Draw, Table

ROWS = 60
"""In log 1, behind the two rows of its base."""

SHAPELOG = (sys.executable, "-P", "-m", "cdc.cli")


class Answer(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert (self.status in (0, 1), self.err) == (True, "")
        facts: dict[str, Any] = orjson.loads(self.out)
        return facts


Shapelog = Callable[..., Answer]


@pytest.fixture
def shapelog(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shapelog:
    # The program's events go to its standard error, which is this test's: those of the tests behind it would too.
    monkeypatch.setattr("cdc.serve.begin_logging", lambda _: None)

    def run(*arguments: str | Path) -> Answer:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert isinstance(ended.value.code, int)
        return Answer(ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Log 1 has a base, a segment and shares in the journal; log 2 is empty; all is confirmed."""
    disk = LocalDisk(tmp_path)
    rig = Rig(disk, to_segments())
    rig.create(2)
    base = rig.store.new_base(1)
    base.chunk(rows([(0, 0)] * 2), written_at=1)
    base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=1)
    for tx in range(1, ROWS // 4 + 1):
        rig.write(tx, 2)
        rig.store.flush_all()
    rig = Rig(disk, to_journal())
    for tx in range(ROWS // 4 + 1, ROWS // 2 + 1):
        rig.write(tx, 2)
        rig.store.flush_all()
    ProgressLog(disk).append(ProgressRecord(Incarnation(1, 1, 1), 1_000, 0, 0))
    disk.close()
    return tmp_path


def test_version(shapelog: Shapelog) -> None:
    assert re.fullmatch(r"shapelog \d+\.\d+\.\d+\n", shapelog("--version").out)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, as it is typed."""
    below = getattr(command, "commands", {})
    if words and not below:
        yield words
    for name, one in below.items():
        yield from commands(one, (*words, name))


@pytest.mark.parametrize("command", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_help_has_examples(shapelog: Shapelog, command: tuple[str, ...]) -> None:
    answer = shapelog(*command, "--help")
    assert answer.status == 0
    assert re.search(rf"^ +(\S+ <?\(?)?shapelog (--config \S+ )?{' '.join(command)}\b", answer.out, re.MULTILINE)
    assert command[0] in shapelog().out


@pytest.mark.parametrize("command", [("shapes",), ("config",)])
def test_a_command_of_commands_says_which(shapelog: Shapelog, command: tuple[str, ...]) -> None:
    answer = shapelog(*command)
    assert answer.status == 0
    assert "Commands:" in answer.out


@pytest.mark.parametrize(("terminal", "no_color", "is_coloured"), [("1", "", True), ("1", "1", False), ("", "", False)])
def test_colours_only_where_they_are_wanted(
    shapelog: Shapelog,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    terminal: str,
    no_color: str,
    is_coloured: bool,
) -> None:
    """In a terminal, unless NO_COLOR is set; a table in a pipe is plain columns."""
    for name, value in (
        ("FORCE_COLOR", terminal),
        ("NO_COLOR", no_color),
        ("TERM", "xterm-256color" if terminal else ""),
    ):
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name, raising=False)
    answer = shapelog("logs", folder)
    assert "handle-1" in answer.out
    assert ("\x1b" in answer.out) == bool(terminal)
    console().print("[red]fault[/]")
    assert ("\x1b[31m" in capsys.readouterr().out) == is_coloured


def test_help_waits_for_nothing() -> None:
    program = "import sys\nfrom cdc.cli import main\ntry: main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Usage" in answer.stdout
    assert not {"asyncio", "numpy", "psycopg", "pyarrow", "rich"} & set(answer.stdout.split())


@pytest.mark.parametrize("command", [["shapes", "list"], ["status"]])
def test_who_only_asks_a_server_waits_for_no_arrays(command: list[str]) -> None:
    program = f"import sys\nfrom cdc.cli import main\ntry: main({command})\nexcept SystemExit: print(*sys.modules)"
    environment = {**os.environ, "SHAPELOG_URL": "http://127.0.0.1:1"}
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert "server_silent" in answer.stderr
    assert not {"asyncio", "numpy", "psycopg", "pyarrow"} & set(answer.stdout.split())


def test_logs(shapelog: Shapelog, folder: Path) -> None:
    lines = shapelog("logs", folder).out.splitlines()
    assert lines[0].split() == ["log", "handle", "upper", "segments", "bytes", "bases"]
    assert lines[1].split()[:4] == ["1", "handle-1", f"{ROWS // 2}_3", "1"]
    assert lines[2].split() == ["2", "handle-2", "0_inf", "0", "0", "0"]
    assert lines[3].startswith("2 logs; ")


def test_logs_as_json(shapelog: Shapelog, folder: Path) -> None:
    first, second = shapelog("logs", folder, "--json").json["logs"]
    files = [path for path in (folder / "logs/1").iterdir() if path.name != "log.json"]
    assert first == {
        "log": 1,
        "handle": "handle-1",
        "upper": f"{ROWS // 2}_3",
        "segments": 1,
        "bytes": sum(path.stat().st_size for path in files),
        "bases": 1,
        "fault": None,
    }
    assert second["handle"] == "handle-2"


def test_a_damaged_log_does_not_hide_the_others(shapelog: Shapelog, folder: Path) -> None:
    (folder / "logs/1/log.json").write_text("{}")
    answer = shapelog("logs", folder)
    assert answer.status == 2
    assert "handle-2" in answer.out
    assert re.fullmatch(r"shapelog: log 1: \[unknown_format\] .*\n", answer.err)


@pytest.mark.parametrize("log", ["1", "handle-1"])
def test_read_begins_with_the_base(shapelog: Shapelog, folder: Path, log: str) -> None:
    lines = shapelog("read", folder, log).out.splitlines()
    assert lines[:3] == ['0_0 insert id=0.0 text=""'] * 2 + ['1_0 insert id=1.0 text=""']
    assert len(lines) == ROWS + 2


def test_read_as_json(shapelog: Shapelog, folder: Path) -> None:
    answer = shapelog("read", folder, "1", "--after", "0_inf", "--json")
    found = [orjson.loads(line) for line in answer.out.splitlines()]
    assert found[1] == {"offset": "1_2", "kind": "insert", "new": {"id": "1.2", "text": ""}}
    assert len(found) == ROWS


@pytest.mark.parametrize("max_bytes", ["0", "150", "1000", "100000"])
def test_pages_join(shapelog: Shapelog, folder: Path, max_bytes: str) -> None:
    after, found = "-1", []
    while True:
        answer = shapelog("read", folder, "1", "--after", after, "--max-bytes", max_bytes)
        match = re.fullmatch(r"next: --after (\S+)\n", answer.err)
        assert match is not None
        found += answer.out.splitlines()
        if match[1] == after:
            break
        after = match[1]
    assert found == shapelog("read", folder, "1").out.splitlines()


def test_whatever_a_value_has_stays_on_its_line(shapelog: Shapelog, folder: Path) -> None:
    rig = Rig(LocalDisk(folder), to_journal())
    texts = ["two\nlines", "\x1b[31mred", "a b", 'say "x"', "\x9bcsi", "null", "plain"]
    for tx, text in enumerate(texts, start=100):
        rig.write(tx, text=text)
    rig.store.flush_all()
    lines = shapelog("read", folder, "1", "--after", "99_0").out.splitlines()
    assert len(lines) == len(texts)
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert [orjson.loads(line.partition("text=")[2]) for line in lines[:-1]] == texts[:-1]
    assert lines[-1].endswith("text=plain")


def test_what_was_not_sent_is_named(shapelog: Shapelog, tmp_path: Path) -> None:
    rig = Rig(LocalDisk(tmp_path), to_journal())
    values = {"tx": 1, "op": 0, "kind": Kind.UPDATE, "absent": b"\x02", "new": {"id": "7"}}
    sent = pa.RecordBatch.from_pylist([values], schema=row_schema(COLUMNS))
    rig.store.append(1, sent, after=SNAPSHOT_END, aligned=LogOffset.aligned(1, 1))
    rig.store.flush_all()
    assert shapelog("read", tmp_path, "1").out == "1_0 update id=7\n"
    row = orjson.loads(shapelog("read", tmp_path, "1", "--json").out)
    assert row == {"offset": "1_0", "kind": "update", "new": {"id": "7"}, "absent": ["text"]}


def test_a_row_names_its_transaction(shapelog: Shapelog, tmp_path: Path) -> None:
    rig = Rig(LocalDisk(tmp_path), to_journal())
    values = {"tx": 1, "op": 0, "kind": Kind.INSERT, "xid": 2**32 - 1, "new": {"id": "7", "text": "a"}}
    sent = pa.RecordBatch.from_pylist([values], schema=row_schema(COLUMNS, xid=True))
    rig.store.append(1, sent, after=SNAPSHOT_END, aligned=LogOffset.aligned(1, 1))
    rig.store.flush_all()
    assert shapelog("read", tmp_path, "1").out == "1_0 insert xid:4294967295 id=7 text=a\n"
    assert orjson.loads(shapelog("read", tmp_path, "1", "--json").out)["xid"] == 2**32 - 1


def test_verify(shapelog: Shapelog, folder: Path) -> None:
    assert shapelog("verify", folder).out.startswith(f"all sound: 2 logs, 31 blocks, {ROWS + 2} rows, ")
    assert shapelog("verify", folder).status == 0
    report = shapelog("verify", folder, "--json").json
    assert (report["is_sound"], report["rows"], report["damage"]) == (True, ROWS + 2, [])


def test_verify_names_the_damaged_log(shapelog: Shapelog, folder: Path) -> None:
    (segment,) = (folder / "logs/1").glob("*.segment")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    answer = shapelog("verify", folder)
    assert answer.status == 1
    (line, verdict) = answer.out.splitlines()
    assert line.startswith("DAMAGED: log 1 (handle-1): [corrupt_block] ")
    assert "Take a new snapshot of this shape." in line
    assert verdict.startswith("1 damaged places: ")
    (damage,) = shapelog("verify", folder, "--json").json["damage"]
    assert (damage["log"], damage["handle"], damage["code"]) == (1, "handle-1", "corrupt_block")


MISTAKES = [
    (["logs", "{}/nowhere"], "there is no folder"),
    (["logs", "{}/LOCK"], "is a file"),
    (["logs", "{}/logs"], "is not a data folder"),
    (["logs"], "Missing argument 'DIR'"),
    (["logs", "{}", "--jsn"], "No such option"),
    (["nothing"], "No such command 'nothing'"),
    (["read", "{}", "7"], "there is no log 7; there are 1, 2"),
    (["read", "{}", "handle-7"], "there is no log handle-7"),
    (["read", "{}", "1", "--after", "3"], "[invalid_offset] '3' is not an offset"),
    (["read", "{}", "1", "--after", "999_0"], "[above_upper] the log ends at 30_3"),
    (["read", "{}", "1", "--max-bytes", "-1"], "--max-bytes"),
    (["read", "{}", "1", "--max-bytes", "1", "--follow"], "choose"),
    (["verify", "{}/nowhere"], "there is no folder"),
    (["demo", "--for", "0"], "--for"),
    (["demo", "--for", "long"], "--for"),
    (["demo", "--keep", "{}"], "is not empty: name a new folder"),
    (["demo", "--keep", "{}/LOCK"], "LOCK: "),
    (["completion", "csh"], "'csh'"),
    (["preflight", "--observe", "0"], "--observe"),
    (["preflight", "--database", "host=127.0.0.1 port=1"], "[unreachable] "),
    (["serve", "--config", "x"], "--config stands before the command"),
    (["--config", "{}/nowhere", "status"], "[setting_invalid] "),
    (["--config", "{}/nowhere", "doctor"], "/nowhere cannot be read: No such file"),
    (["doctor", "--database", "no such thing"], "[refused] what says where Postgres is makes no sense"),
    (["watch", "--database", "host=127.0.0.1 port=1"], "[unreachable] "),
    (["watch", "--count", "0"], "--count"),
    (["watch", "orders", "--publication", "shop"], "name tables or a publication"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_gets_one_line(shapelog: Shapelog, folder: Path, arguments: list[str], message: str) -> None:
    (folder / "LOCK").touch()
    answer = shapelog(*(argument.replace("{}", str(folder)) for argument in arguments))
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("shapelog: ")
    assert message in answer.err
    assert answer.err.count("\n") == 1


def test_followed_rows_come_when_they_are_written(folder: Path) -> None:
    command = [*SHAPELOG, "read", str(folder), "1", "--after", f"{ROWS // 2}_3", "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0) as reader:
        said = buffered(reader.stdout)
        rig = Rig(LocalDisk(folder), to_journal())
        for tx in (100, 101, 102):
            rig.write(tx)
            rig.store.flush_all()
            assert orjson.loads(said.readline())["offset"] == f"{tx}_0"
        reader.send_signal(signal.SIGINT)
        _, errors = reader.communicate()
        assert (reader.returncode, errors) == (130, b"")


def test_who_follows_from_behind_a_fold_begins_anew_and_is_told(tmp_path: Path, shapelog: Shapelog) -> None:
    with folder_of(LocalDisk(tmp_path)) as disk:
        table = Table(disk)
        for number in range(9):
            table.write([Draw(number % 3, dies=False, sent=3, value=number)], flush=True)
        behind = str(table.rows[1].at)
        base = fold_prefix(table.rig.store, 1, RetentionPolicy(bytes_max=0), now=1)
        assert base is not None
        assert retire(table.rig.store, 1, now=1)
        refused = shapelog("read", tmp_path, "1", "--after", behind)
        assert (refused.status, "[refetch]" in refused.err, "Begin anew at -1" in refused.err) == (2, True, True)
        wanted = shapelog("read", tmp_path, "1").out.splitlines()
        command = [*SHAPELOG, "read", str(tmp_path), "1", "--after", behind, "--follow"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0) as reader:
            said = buffered(reader.stdout)
            assert [said.readline().decode().rstrip() for _ in wanted] == wanted
            table.write([Draw(1, dies=False, sent=3, value=7)], flush=True)
            assert said.readline().startswith(f"{table.rows[-1].at} ".encode())
            reader.send_signal(signal.SIGINT)
            _, errors = reader.communicate()
            assert (reader.returncode, errors.decode().count("folded into a newer base")) == (130, 1)


def buffered(stream: IO[bytes] | None) -> io.BufferedReader:
    assert isinstance(stream, io.BufferedReader)
    return stream


def test_a_reader_who_has_seen_enough_is_no_error(folder: Path) -> None:
    rig = Rig(LocalDisk(folder), to_segments())
    for tx in range(100, 104):
        rig.write(tx, 300, text="x" * 300)  # more than a pipe holds
    rig.store.flush_all()
    with subprocess.Popen(
        [*SHAPELOG, "read", str(folder), "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        stream = buffered(child.stdout)
        assert stream.readline() == b'0_0 insert id=0.0 text=""\n'
        stream.close()
        assert buffered(child.stderr).read() == b""
        assert child.wait() == 128 + signal.SIGPIPE


def test_a_full_disk_that_ends_a_command_says_to_try_again(
    shapelog: Shapelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the program runs, writing resumes by itself; a start that it ended does not."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LocalDisk, "create", full)
    answer = shapelog("serve", "--data-dir", tmp_path / "data", "-d", "postgresql://127.0.0.1:1/nowhere", "--port", "0")
    assert answer.status == 2
    assert "[shared_disk_fault]" in answer.err
    assert "then try again" in answer.err
    assert "by itself" not in answer.err
