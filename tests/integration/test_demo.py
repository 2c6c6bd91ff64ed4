"""The demo as users start it: it proves what it promises, and leaves no process and no folder, however it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

SHAPELOG = (sys.executable, "-P", "-m", "cdc.cli")


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


def processes_of(folder: Path) -> list[str]:
    """The command lines that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it ended while we looked
    return [line for line in found if str(folder) in line]


def test_the_demo_proves_what_it_promises(tmp_path: Path) -> None:
    with started(tmp_path, "--for", "4", "--json") as demo:
        out, errors = demo.communicate()
    facts = orjson.loads(out)
    assert (demo.returncode, errors, facts["problem"]) == (0, "", None)
    assert facts["is_sound"]
    assert facts["kills"] >= 1
    assert facts["transactions"] > 0
    assert set(facts["rows"]) == {"customers", "orders", "order_lines"}
    assert all(facts["rows"].values())
    assert facts["confirmed"] > 0
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


def test_a_kept_folder_can_be_gone_on_with_and_looked_at(tmp_path: Path) -> None:
    transactions = []
    for _ in range(2):
        with started(tmp_path, "--for", "1", "--data-dir", "kept", "--json") as demo:
            facts = orjson.loads(demo.communicate()[0])
        assert (demo.returncode, facts["problem"]) == (0, None)
        transactions.append(facts["transactions"])
    assert 0 < transactions[0] <= transactions[1]
    for command in ("logs", "verify"):
        answer = subprocess.run([*SHAPELOG, command, "kept"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert answer.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_verify_beside_a_writer_that_is_killed_finds_no_damage(tmp_path: Path) -> None:
    with started(tmp_path, "--for", "4", "--data-dir", "kept") as demo:
        assert demo.stdout is not None
        assert "the writer is ready" in demo.stdout.readline()
        looks = 0
        while demo.poll() is None:
            subprocess.run([*SHAPELOG, "verify", "kept"], cwd=tmp_path, capture_output=True, check=True)
            looks += 1
        assert demo.returncode == 0
        assert looks > 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "--for", "60") as demo:
        assert demo.stdout is not None
        assert "the writer is ready" in demo.stdout.readline()
        assert processes_of(tmp_path)
        demo.send_signal(number)
        out, errors = demo.communicate()
    assert demo.returncode == 128 + number
    assert errors == ""
    assert out.splitlines()[-1] == "stopped"
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with started(tmp_path, "--for", "60", "--data-dir", "kept") as first:
        assert first.stdout is not None
        first.stdout.readline()
        with started(tmp_path, "--data-dir", "kept") as second:
            out, errors = second.communicate()
        assert (second.returncode, out, errors) == (2, "", "shapelog: another demo runs in kept\n")
        first.send_signal(signal.SIGINT)
        first.communicate()


def test_a_folder_that_somebody_damaged_is_not_called_sound(tmp_path: Path) -> None:
    with started(tmp_path, "--for", "1", "--data-dir", "kept") as demo:
        demo.communicate()
    path = tmp_path / "kept/logs/3/0.base"  # rows may still be in the journal, and are taken from there
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with started(tmp_path, "--for", "1", "--data-dir", "kept", "--json") as demo:
        out, _ = demo.communicate()
    facts = orjson.loads(out)
    assert (demo.returncode, facts["is_sound"], facts["folder"]) == (1, False, "kept")
    assert "[corrupt_block]" in facts["problem"]
    assert processes_of(tmp_path) == []
