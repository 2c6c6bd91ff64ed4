"""Somebody who does what a page says, word for word: each line in a shell, servers in terminals of their own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg

from tests.examples import ADDRESS
from tests.postgres import Database, Server, free_port
from tests.waiting import until

SECONDS = 80  # Spark starts in it, on a very busy machine
SHOP = (
    "CREATE ROLE shop_owner",
    "GRANT CREATE ON SCHEMA public TO shop_owner",
    "SET ROLE shop_owner",
    "CREATE TABLE orders (id int PRIMARY KEY, status text)",
    "INSERT INTO orders SELECT g, CASE WHEN g % 2 = 0 THEN 'placed' ELSE 'sent' END FROM generate_series(1, 100) g",
)
"""What whoever reads a page has already."""

CHANGE = "UPDATE orders SET status = CASE status WHEN 'placed' THEN 'sent' ELSE 'placed' END WHERE id = 2"
PATIENCE = ("--observe 60", "--observe 1")
"""A minute of watching is for people."""


@dataclass
class Running:
    """A command in a terminal of its own."""

    process: "subprocess.Popen[bytes]"
    screen: Path

    def shows(self, words: str) -> bool:
        assert self.process.poll() is None, self.screen.read_text()
        return re.search(words, self.screen.read_text()) is not None

    def waits_for(self, words: str) -> None:
        """Until it shows them."""
        try:
            until(partial(self.shows, words), words, SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen shows: {self.screen.read_text()[-2000:]}") from None

    def interrupted(self) -> int:
        """Its exit code, after Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(SECONDS)


@dataclass
class Newcomer:
    """Types what a page says, in a folder of their own."""

    shop: Database
    folder: Path
    port: int
    database_url: str = ""
    """Instead of the page's, once that was exported."""
    environment: dict[str, str] = field(default_factory=dict)
    terminals: list[Running] = field(default_factory=list)

    def __post_init__(self) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {**os.environ, "PATH": path, "SHAPELOG_PORT": str(self.port), "SHAPELOG_URL": self.url}

    def types(self, block: str) -> None:
        """The lines of a block; what does not end by itself goes on in a terminal of its own."""
        for typed in block.splitlines():
            line = typed.replace(".venv/bin/", "").replace(ADDRESS, self.url).replace(*PATIENCE)
            words = line.split()
            if words[0] == "export":
                assert words[1].startswith(("DATABASE_URL=postgresql://", "DATABASE_URL='postgresql://")), line
                self.environment["DATABASE_URL"] = self.database_url
            elif words[:2] == ["shapelog", "watch"] or words[:2] == ["shapelog", "tail"]:
                self._watches(line)
            elif words[:2] == ["shapelog", "serve"]:
                self.opens(line).waits_for("listening at")
            elif "--every" in words:
                self.opens(line).waits_for("version 1 at")
            else:
                self.runs(line)

    def runs(self, line: str) -> str:
        """What it prints; it must end well."""
        ended = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ended.returncode == 0, f"{line}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def runs_python(self, text: str) -> str:
        """The same, of a script."""
        (self.folder / "script.py").write_text(text.replace(ADDRESS, self.url), "utf-8")
        return self.runs(f"{sys.executable} script.py")

    def opens(self, line: str) -> Running:
        """Another terminal, in which this begins."""
        screen = self.folder / f"terminal {len(self.terminals)}"
        with screen.open("wb") as file:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {line}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.terminals.append(Running(process, screen))
        return self.terminals[-1]

    def _watches(self, line: str) -> None:
        """A change is shown once the command is there; nobody knows when it is, so there are changes until then."""
        opened = self.opens(line)

        def is_shown() -> bool:
            self.shop.execute(CHANGE)
            return opened.shows(r"\bid='?2\b")

        until(is_shown, f"a change from {line}", SECONDS)
        assert opened.interrupted() == 128 + signal.SIGINT

    def stops_all(self) -> None:
        """What is still open ends well, the newest first."""
        for terminal in reversed(self.terminals):
            if terminal.process.poll() is None:
                assert terminal.interrupted() == 0, terminal.screen.read_text()


@contextmanager
def newcomer(server: Server, folder: Path) -> Iterator[Newcomer]:
    """With a shop, and nothing else."""
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shop")
    shop = Database(server, "shop")
    with shop.connect() as owner:
        for statement in SHOP:
            owner.execute(statement)
    one = Newcomer(shop, folder, free_port(), shop.conninfo())
    try:
        yield one
    finally:
        for terminal in one.terminals:
            if terminal.process.poll() is None:
                terminal.process.kill()
                terminal.process.wait()
