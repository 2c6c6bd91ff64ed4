"""The page of the first ten minutes, done as a newcomer does it: every statement and command of it, in its order."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pglast
import psycopg

from tests.postgres import Database, Server, free_port
from tests.tree import ROOT
from tests.waiting import until

PAGE = ROOT / "docs/quickstart.md"
PARTS = re.compile(r"^## (\d)\. .*?$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCKS = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECONDS = 50  # Spark starts in it, on a busy machine
OURS = "http://127.0.0.1:3000"
"""Where the page says that the server listens."""

SHOP = (
    "CREATE ROLE shop_owner",
    "GRANT CREATE ON SCHEMA public TO shop_owner",
    "SET ROLE shop_owner",
    "CREATE TABLE orders (id int PRIMARY KEY, status text)",
    "INSERT INTO orders SELECT g, CASE WHEN g % 2 = 0 THEN 'placed' ELSE 'sent' END FROM generate_series(1, 100) g",
)
"""What whoever reads the page has already."""

CHANGE = "UPDATE orders SET status = CASE status WHEN 'placed' THEN 'sent' ELSE 'placed' END WHERE id = 2"


@dataclass
class Running:
    """A command in a terminal of its own."""

    process: "subprocess.Popen[bytes]"
    screen: Path

    def shows(self, words: str) -> bool:
        assert self.process.poll() is None, self.screen.read_text()
        return re.search(words, self.screen.read_text()) is not None

    def interrupted(self) -> int:
        """Its exit code, after Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(SECONDS)


@dataclass
class Newcomer:
    """Types what the page says."""

    shop: Database
    folder: Path
    port: int
    environment: dict[str, str] = field(default_factory=dict)
    terminals: list[Running] = field(default_factory=list)

    def __post_init__(self) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        url = f"http://127.0.0.1:{self.port}"
        self.environment = {**os.environ, "PATH": path, "SHAPELOG_PORT": str(self.port), "SHAPELOG_URL": url}

    def types(self, block: str) -> None:
        """The lines of a block; what does not end by itself goes on in a terminal of its own."""
        for line in block.splitlines():
            words = line.split()
            if words[0] == "export":
                assert "//shapelog:choose-one@localhost/shop" in line
                self.environment["DATABASE_URL"] = self.shop.conninfo(user="shapelog", password="choose-one")  # noqa: S106 - the page's
            elif words[:2] == ["shapelog", "watch"] or words[:2] == ["shapelog", "tail"]:
                self._watches(line)
            elif words[:2] == ["shapelog", "serve"]:
                until(partial(self.opens(line).shows, "listening at"), line, SECONDS)
            elif "--every" in words:
                until(partial(self.opens(line).shows, "version 1 at"), line, SECONDS)
            else:
                self.runs(line.replace(OURS, self.environment["SHAPELOG_URL"]))

    def runs(self, line: str) -> str:
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

    def opens(self, line: str) -> Running:
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


@contextmanager
def newcomer(server: Server, folder: Path) -> Iterator[Newcomer]:
    """With a shop, and nothing else."""
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shop")
    shop = Database(server, "shop")
    with shop.connect() as owner:
        for statement in SHOP:
            owner.execute(statement)
    one = Newcomer(shop, folder, free_port())
    try:
        yield one
    finally:
        for terminal in one.terminals:
            if terminal.process.poll() is None:
                terminal.process.kill()
                terminal.process.wait()


def test_the_page_of_the_first_ten_minutes_holds(own_server: Callable[[], Server], tmp_path: Path) -> None:
    parts = {int(number): BLOCKS.findall(text) for number, text in PARTS.findall(PAGE.read_text("utf-8"))}
    assert [*parts] == list(range(8))
    with newcomer(own_server(), tmp_path) as someone:
        for number, blocks in parts.items():
            for kind, text in blocks if number else []:  # the release's own tests install it
                match kind:
                    case "sql":
                        for statement in pglast.split(text):
                            someone.shop.execute(statement)
                    case "sh":
                        someone.types(text)
                    case _:
                        script = tmp_path / "script.py"
                        script.write_text(textwrap.dedent(text))
                        someone.runs(f"{sys.executable} script.py")
        assert "open" in someone.runs("shapelog shapes list")
        *_, server, lake = (one for one in someone.terminals if one.process.poll() is None)
        assert lake.interrupted() == 0
        assert server.interrupted() == 0
    slots = someone.shop.slots()
    assert [*slots] == ["shapelog"], "what was temporary is gone"
    assert not slots["shapelog"]["active"]
