"""What befalls the shapes of a process that will be killed: births, removals, altered and truncated tables, by chance.

Deeds are begun and not waited for: the kill comes in the midst of them. What is true of every shape that is there at
the end is asked afterwards, of whichever there are.
"""

import random
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson
import psycopg

from tests.postgres import Database

SHAPES_MAX: Final = 7
"""More make every start slower, and show nothing more."""

WHERES: Final = {
    "orders": (None, "state = 'open'", "customer < 10", "id > 1000 AND state IN ('open', 'done')"),
    "customers": (None, "id % 2 = 0", "credit > 100"),
}
COLUMNS: Final = {"orders": (None, None, "id,state,customer"), "customers": (None, None, "id,credit")}


class Story:
    """The deeds of one run, from one source of chance."""

    def __init__(self, database: Database, chance: random.Random, stay: frozenset[str]) -> None:
        """`stay`: names of shapes that nobody removes."""
        self._database = database
        self._chance = chance
        self._stay = stay
        self._made = 0
        self._altered: set[str] = set()
        """Tables that have a column more, unless that was in vain."""
        self.done: dict[str, int] = {}
        """How often each kind of deed was begun."""

    def go_on(self, running: "subprocess.Popen[str]", shapes: list[dict[str, Any]]) -> None:
        """A few deeds, beside the shapes that there are."""
        for _ in range(self._chance.choice((1, 2, 3))):
            removable = [one["name"] or one["handle"] for one in shapes if one["name"] not in self._stay]
            is_full = len(shapes) >= SHAPES_MAX
            deeds: list[Callable[[], object]] = [self._alter, self._truncate]
            deeds += [lambda: self._add(running)] * (0 if is_full else 6)
            if removable:
                remove = partial(self._remove, running, self._chance.choice(removable))
                deeds += [remove] * (9 if is_full else 3)
            self._chance.choice(deeds)()

    def _add(self, running: "subprocess.Popen[str]") -> None:
        chance = self._chance
        self._count("births")
        self._made += 1
        table = chance.choice(("orders", "orders", "customers"))
        request = {
            "where": chance.choice(WHERES[table]),
            "columns": chance.choice(COLUMNS[table]),
            "replica": chance.choice((None, None, "full")),
        }
        name = chance.choice((None, f"named_{self._made}"))
        tell(running, ["add", table, name, {field: text for field, text in request.items() if text is not None}])

    def _remove(self, running: "subprocess.Popen[str]", shape: str) -> None:
        self._count("removals")
        tell(running, ["remove", shape])

    def _alter(self) -> None:
        """A column comes, or the one that came goes: tables of a hundred columns would only be slow."""
        self._count("columns")
        table = self._chance.choice(("orders", "customers"))
        self._altered ^= {table}
        self._execute(
            f"ALTER TABLE {table} " + ("ADD COLUMN more int" if table in self._altered else "DROP COLUMN more")
        )

    def _truncate(self) -> None:
        self._count("truncates")
        self._execute("TRUNCATE orders")

    def _execute(self, statement: str) -> None:
        """A lock that is not to be had in time is left: a copy holds it, or the server is away."""
        try:
            with self._database.connect() as connection:
                connection.execute("SET lock_timeout = '1s'")
                connection.execute(statement.encode())
        except (psycopg.OperationalError, psycopg.errors.UndefinedColumn, psycopg.errors.DuplicateColumn):
            self._count("in vain")

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


def tell(running: "subprocess.Popen[str]", deed: list[Any]) -> None:
    """A line for `tests.loop_process`."""
    assert running.stdin is not None
    running.stdin.write(orjson.dumps(deed).decode() + "\n")
    running.stdin.flush()


def marks_of(running: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    """The shapes that it has now, and how far each is durable."""
    tell(running, ["marks"])
    assert running.stdout is not None
    line = running.stdout.readline()
    assert line, "the process ended by itself"
    found: list[dict[str, Any]] = orjson.loads(line)
    return found
