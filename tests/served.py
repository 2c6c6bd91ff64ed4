"""`shapelog serve` as a process of its own beside a real server, and the other commands as a person starts them."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx
import orjson

from cdc.source.lsn import parse_lsn
from tests.postgres import Database
from tests.waiting import until

SHAPELOG = (sys.executable, "-c", "from cdc.cli import main; main()")
SECONDS = 40
LISTENING = re.compile(r"listening at (http://\S+?)[\"\s]")


def shapelog(*arguments: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A command, from its start to its end."""
    more = {"COLUMNS": "200", "DATABASE_URL": ""} | environment
    command = [*SHAPELOG, *map(str, arguments)]
    return subprocess.run(
        command,
        env=os.environ | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@dataclass
class Served:
    """A running server."""

    process: "subprocess.Popen[str]"
    database: Database
    folder: Path
    url: str = ""
    lines: list[str] = field(default_factory=list)
    """Of its standard error."""
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **asked: Any) -> httpx.Response:
        return httpx.get(self.url + path, headers=self.headers, timeout=SECONDS, **asked)

    def status(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.get("/v1/admin/status").json()
        return facts

    def shape(self, name: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            return next((one for one in self.status()["shapes"] if one["name"] == name), None)

        return until(look, f"a shape called {name}") or {}

    def run(self, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        """A command that speaks to it."""
        return shapelog(*arguments, SHAPELOG_URL=self.url)

    def add(self, *arguments: str) -> dict[str, Any]:
        answer = self.run("shapes", "add", *arguments, "--json")
        assert answer.returncode == 0, answer.stderr
        shape: dict[str, Any] = orjson.loads(answer.stdout)["shape"]
        return shape

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of a shape, from its start, as its log has them."""
        found: list[dict[str, Any]] = []
        after = "-1"
        while True:
            answer = self.get(f"/v1/admin/shapes/{name}/rows", params={"after": after})
            assert answer.status_code == 200, answer.text
            lines = [orjson.loads(line) for line in answer.text.splitlines()]
            if not lines and answer.headers["shapelog-next"] == after:
                return found
            found += lines
            after = answer.headers["shapelog-next"]

    def folded(self, name: str, key: str = "id") -> dict[str, dict[str, Any]]:
        """A shape's rows after all changes; nothing may come twice."""
        rows: dict[str, dict[str, Any]] = {}
        for row in self.rows(name):
            match row["kind"]:
                case "insert":
                    assert row["new"][key] not in rows, f"{row} is inserted twice"
                    rows[row["new"][key]] = row["new"]
                case "update":
                    rows[row["new"][key]] |= row["new"]
                case "delete":
                    del rows[(row.get("new") or row["old"])[key]]
                case "truncate":
                    rows.clear()
        return rows

    def caught_up(self) -> None:
        """Wait until what is committed now is confirmed."""
        end = parse_lsn(self.database.value("SELECT pg_current_wal_lsn()::text"))

        def is_confirmed() -> bool:
            slot = self.database.slots().get("shapelog")
            return slot is not None and parse_lsn(slot["confirmed_flush_lsn"]) >= end

        until(is_confirmed, f"the slot to be confirmed; {self.lines[-5:]}")

    def active(self) -> None:
        """Wait until readers can be served."""
        until(lambda: self.get("/v1/health").status_code == 200, f"the server to be active: {self.lines}")

    def told(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextmanager
def serving(
    database: Database,
    folder: Path,
    *options: str,
    headers: dict[str, str] | None = None,
    program: Sequence[str] = SHAPELOG,
    **environment: str,
) -> Iterator[Served]:
    """A server that listens; killed at the end if it still runs."""
    served = start(database, folder, *options, program=program, **environment)
    served.headers = headers or {}
    with served.process:
        try:
            until(lambda: served.url or served.process.poll() is not None, f"it to listen: {served.lines}", SECONDS)
            yield served
        finally:
            served.process.kill()


def start(
    database: Database, folder: Path, *options: str, program: Sequence[str] = SHAPELOG, **environment: str
) -> Served:
    """As `serving`, for one that may refuse to run."""
    process = subprocess.Popen(
        [*program, "serve", "--data-dir", str(folder), "--port", "0", *options],
        env=os.environ | {"DATABASE_URL": database.conninfo()} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    served = Served(process, database, folder)

    def read() -> None:
        assert process.stderr is not None
        with contextlib.suppress(ValueError):  # it was closed under our hands
            for line in process.stderr:
                served.lines.append(line.rstrip())
                if found := LISTENING.search(line):
                    served.url = found[1]

    threading.Thread(target=read, daemon=True).start()
    return served


def refused(database: Database, folder: Path, *options: str, **environment: str) -> str:
    """The one line of a server that refuses to go on."""
    served = start(database, folder, *options, **environment)
    with served.process:
        try:
            assert served.process.wait(SECONDS) == 2, served.lines
        finally:
            served.process.kill()
    told = until(lambda: [line for line in served.lines if line.startswith("shapelog: ")], "its last line")
    assert len(told) == 1, told
    assert not served.told("Traceback"), served.lines
    return told[0]


@contextmanager
def tailing(*arguments: str) -> Iterator[tuple[list[str], list[str]]]:
    """A `shapelog tail` that runs: what it writes to its output and to its error, line by line as it comes."""
    process = subprocess.Popen(
        [*SHAPELOG, "tail", *arguments],
        env=os.environ | {"DATABASE_URL": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[str] = []
    notes: list[str] = []
    for stream, into in ((process.stdout, lines), (process.stderr, notes)):
        threading.Thread(target=_collect, args=(stream, into), daemon=True).start()
    with process:
        try:
            yield lines, notes
        finally:
            process.kill()


def _collect(stream: IO[str], into: list[str]) -> None:
    with contextlib.suppress(ValueError):  # it was closed under our hands
        into.extend(line.rstrip("\n") for line in stream)
