"""The demo as users start it: it proves what it promises, and leaves no process and no folder, however it ends."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import orjson
import psycopg
import pytest

from cdc.demo.shapes import SHAPES
from cdc.embedded.postgres import EVERYBODYS
from tests.waiting import until

SHAPELOG = (sys.executable, "-P", "-m", "cdc.cli")
OPEN = "one more shape"
"""In the line that says that the shop is open, and followed."""


def clean_environment(temporary: Path) -> dict[str, str]:
    """Nothing of this process; temporary folders are made where we can see them."""
    return {"PATH": os.defpath, "TMPDIR": str(temporary)}


@contextmanager
def started(temporary: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [*SHAPELOG, "demo", *arguments]
    environment = clean_environment(temporary)
    with subprocess.Popen(
        command, env=environment, cwd=temporary, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(demo: "subprocess.Popen[str]", words: str) -> str:
    """The line that has these words, waited for."""
    assert demo.stdout is not None
    lines: list[str] = []
    for line in demo.stdout:
        if words in line:
            return line
        lines.append(line)
    pytest.fail(f"the demo ended without saying {words!r}: {''.join(lines)}{demo.communicate()[1]}")


def family(pid: int) -> set[int]:
    """The processes below one, with theirs."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        parents.setdefault(int(after_name[1]), []).append(int(path.parent.name))
    found, waiting = set[int](), [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found.update(children)
        waiting += children
    return found


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def folders_of_postgres(demo: "subprocess.Popen[str]") -> list[Path]:
    return list(Path(EVERYBODYS).glob(f"shapelog-postgres-{demo.pid}-*"))


def test_the_demo_proves_what_it_promises(tmp_path: Path) -> None:
    with started(tmp_path, "--for", "6", "--no-lake", "--json") as demo:
        out, errors = demo.communicate()
    facts = orjson.loads(out)
    assert (demo.returncode, errors, facts["problem"]) == (0, "", None)
    assert facts["is_sound"]
    assert facts["kills"] >= 1
    assert facts["transactions"] > 0
    assert facts["no_lake"] == "not asked for"
    assert [one["shape"] for one in facts["shapes"]] == [shape.name for shape in SHAPES]
    for one in facts["shapes"]:
        assert one["postgres"] == one["http"]
        assert one["changes_committed"] in (one["changes"], None)
        assert one["changes"] > 0
    assert list(tmp_path.iterdir()) == []


def test_the_lake_has_the_same_rows_and_what_is_kept_can_be_looked_at(tmp_path: Path) -> None:
    with started(tmp_path, "--for", "3", "--keep", "kept", "--json") as demo:
        out, errors = demo.communicate()
    facts = orjson.loads(out)
    assert (demo.returncode, errors, facts["problem"]) == (0, "", None)
    if facts["no_lake"] is not None:
        pytest.skip(f"no lake here: {facts['no_lake']}")
    assert [one["parquet"] for one in facts["shapes"]] == [one["postgres"] for one in facts["shapes"]]
    assert facts["lake_version"] >= 1
    for command in (("logs", "kept/data"), ("verify", "kept/data"), ("lake", "show", "kept/lake")):
        answer = subprocess.run([*SHAPELOG, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert answer.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["data", "lake"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "--for", "60", "--no-lake") as demo:
        url = said(demo, "the console is at").split()[-1]
        assert httpx.get(url, follow_redirects=True).status_code == 200
        said(demo, OPEN)
        children = family(demo.pid)
        assert len(children) > 5, "Postgres with its processes, and the server"
        demo.send_signal(number)
        out, errors = demo.communicate()
    assert (demo.returncode, errors) == (128 + number, "")
    assert out.splitlines()[-1] == "stopped"
    assert [pid for pid in children if is_running(pid)] == []
    assert list(tmp_path.iterdir()) == []
    assert folders_of_postgres(demo) == []


def test_a_killed_demo_takes_its_processes_along(tmp_path: Path) -> None:
    with started(tmp_path, "--for", "60", "--no-lake") as demo:
        said(demo, OPEN)
        children = family(demo.pid)
        demo.kill()
        until(lambda: not any(map(is_running, children)), "the demo's processes to end")
    for folder in folders_of_postgres(demo):
        shutil.rmtree(folder)


def server_of(demo: "subprocess.Popen[str]") -> int:
    def is_server(pid: int) -> bool:
        try:
            return b"\0serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False  # it ended while we looked

    [server] = filter(is_server, family(demo.pid))
    return server


def test_a_change_that_nobody_counted_is_found(tmp_path: Path) -> None:
    with started(tmp_path, "--for", "4", "--no-lake", "--json", "--keep", "kept") as demo:
        data = tmp_path / "kept/data"
        until(lambda: data.is_dir() and len(list(data.glob("logs/*"))) >= len(SHAPES), "the shapes")
        variables = Path(f"/proc/{server_of(demo)}/environ").read_bytes().split(b"\0")
        [url] = [one.partition(b"=")[2].decode() for one in variables if one.startswith(b"DATABASE_URL=")]
        with psycopg.connect(url, autocommit=True) as stranger:
            stranger.execute("INSERT INTO customers VALUES (1000000000, 'Nobody', 'Nowhere', now())")
        out, _ = demo.communicate()
    facts = orjson.loads(out)
    assert (demo.returncode, facts["is_sound"], facts["folder"]) == (1, False, "kept")
    assert facts["problem"].startswith("customers: ")


def test_a_server_that_ends_by_itself_is_not_called_sound(tmp_path: Path) -> None:
    with started(tmp_path, "--for", "60", "--no-lake") as demo:
        said(demo, OPEN)
        os.kill(server_of(demo), signal.SIGTERM)
        out, _ = demo.communicate()
    assert demo.returncode == 1
    assert "NOT AS IT SHOULD BE: the server has ended by itself" in out
    [folder] = tmp_path.iterdir()
    assert out.splitlines()[-1].endswith(str(folder))
    assert (folder / "data").is_dir()
