"""Readers of every kind beside a random writer, restarts and a proxy: what they show was the table, at some moment.

Each transaction counts itself in one row, so a state says how many it holds; it must be the table's after just so many.
A torn transaction, a row twice or a lost one makes another state; a number that falls is time that goes back.
"""

import asyncio
import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import psycopg

from cdc.demo.fold import Fold
from shapes.client import ShapeStream
from shapes.http.settings import HttpSettings
from tests.nginx import free_port, nginx_before
from tests.postgres import Database
from tests.shape_server import SHAPE, serving_shapes
from tests.waiting import eventually

ACCOUNTS = 12
COUNT = 0
"""The row in which transactions are counted."""

TABLE = "CREATE TABLE accounts (id int PRIMARY KEY, amount int NOT NULL)"
FILL = "INSERT INTO accounts SELECT g, CASE g WHEN 0 THEN 0 ELSE 100 END FROM generate_series(0, 12) g"
QUICK = HttpSettings(long_poll_seconds=1.0, sse_seconds=1.0)
LIVES = 3
WRITES = 2
"""Of each life; every reader sees the end of each, if nothing between."""
TRANSACTIONS = 60
"""Of each write."""

State = dict[int, int]


@dataclass
class Bank:
    """The table after each transaction, kept by the one who writes it."""

    states: list[State]

    async def write(self, database: Database, chance: random.Random) -> None:
        async with await psycopg.AsyncConnection.connect(database.conninfo()) as connection:
            for _ in range(TRANSACTIONS):
                state = dict(self.states[-1])
                for _ in range(chance.randint(1, 4)):
                    await self._deed(connection, state, chance)
                state[COUNT] += 1
                await connection.execute("UPDATE accounts SET amount = amount + 1 WHERE id = 0")
                if chance.random() < 0.1:
                    await connection.rollback()
                    continue
                self.states.append(state)  # before the commit: a reader may be faster than its answer
                await connection.commit()

    async def _deed(self, connection: psycopg.AsyncConnection, state: State, chance: random.Random) -> None:
        account, amount = chance.randint(1, ACCOUNTS), chance.randint(1, 50)
        if account not in state:
            state[account] = amount
            await connection.execute("INSERT INTO accounts VALUES (%s, %s)", [account, amount])
        elif chance.random() < 0.2:
            del state[account]
            await connection.execute("DELETE FROM accounts WHERE id = %s", [account])
        else:
            state[account] += amount
            await connection.execute("UPDATE accounts SET amount = amount + %s WHERE id = %s", [amount, account])


@dataclass
class Seen:
    """What one reader has shown."""

    bank: Bank
    last: State = field(default_factory=dict)
    states: int = 0

    def show(self, state: State) -> None:
        count = state[COUNT]
        assert state == self.bank.states[count], f"this is not what {count} transactions made"
        assert count >= self.last.get(COUNT, 0), "time went back"
        self.states += 1
        self.last = state


@dataclass
class EventReader:
    """Follows by events, as a browser does: applies what came when it hears `up-to-date`, and resumes behind it."""

    url: str
    seen: Seen
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    offset: str = "-1"
    handle: str = ""

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=30) as http:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    await (self.sync(http) if self.offset.startswith(("-1", "0_")) else self.stream(http))
                await asyncio.sleep(0)

    def params(self, **more: str) -> dict[str, str]:
        return {"table": "accounts", "offset": self.offset, "handle": self.handle, **more}

    async def sync(self, http: httpx.AsyncClient) -> None:
        is_live = self.offset == "0_inf"
        answer = await http.get(self.url, params=self.params(**({"live": "true"} if is_live else {})))
        if answer.status_code == 200:
            self.handle, self.offset = answer.headers["electric-handle"], answer.headers["electric-offset"]
            self.apply(answer.json())

    async def stream(self, http: httpx.AsyncClient) -> None:
        pending: list[dict[str, Any]] = []
        async with http.stream("GET", self.url, params=self.params(live="true", live_sse="true")) as answer:
            assert answer.status_code in {200, 502, 503}, await answer.aread()
            async for line in answer.aiter_lines():
                if not line.startswith("data: "):
                    continue
                pending.append(orjson.loads(line.removeprefix("data: ")))
                if pending[-1]["headers"].get("control") == "up-to-date":
                    self.apply(pending)
                    self.offset = f"{pending[-1]['headers']['global_last_seen_lsn']}_0"
                    pending = []

    def apply(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            match message["headers"].get("operation"):
                case "insert":
                    assert message["key"] not in self.rows
                    self.rows[message["key"]] = message["value"]
                case "update":
                    self.rows[message["key"]] |= message["value"]
                case "delete":
                    del self.rows[message["key"]]
        if messages[-1]["headers"].get("control") == "up-to-date":
            self.seen.show(state_of(self.rows.values()))


def state_of(rows: Any) -> State:
    return {int(row["id"]): int(row["amount"]) for row in rows}


async def follow(stream: ShapeStream, seen: Seen) -> None:
    """Strictly: a change that comes twice is found even where it changes nothing."""
    fold = Fold("accounts")
    async with contextlib.aclosing(aiter(stream)) as batches:  # type: ignore[type-var]  # a generator, as it is
        async for batch in batches:
            fold.take(batch)
            if batch.is_up_to_date:
                seen.show(state_of(fold.rows.values()))


async def test_every_state_was_one_of_committed_transactions(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(TABLE, FILL)
    bank, chance = Bank([dict(newest_database.execute("SELECT id, amount FROM accounts"))]), random.Random(7)
    port = free_port()
    with nginx_before(port, tmp_path / "nginx") as proxy:
        readers: dict[str, tuple[Seen, asyncio.Task[None]]] = {}
        for place, address in (("directly", f"http://127.0.0.1:{port}"), ("by a proxy", proxy)):
            url = address + SHAPE
            for kind, live_sse in (("answers", False), ("events", True)):
                seen, stream = Seen(bank), ShapeStream(url, "accounts", live_sse=live_sse)
                readers[f"{kind} {place}"] = seen, asyncio.create_task(follow(stream, seen))
            seen = Seen(bank)
            readers[f"plain events {place}"] = seen, asyncio.create_task(EventReader(url, seen).run())

        def is_same() -> bool:
            for _, task in readers.values():
                if task.done():
                    task.result()
            return all(seen.last == bank.states[-1] for seen, _ in readers.values())

        try:
            for _ in range(LIVES):
                settings: Mapping[str, Any] = {"port": port, "chunk_bytes": 400}
                async with serving_shapes(newest_database, tmp_path / "data", QUICK, **settings) as server:
                    for _ in range(WRITES):
                        await bank.write(newest_database, chance)
                        await server.living.caught_up()
                        await eventually(is_same, f"all to have the table's rows: {list(readers)}", 40)
            assert min(seen.states for seen, _ in readers.values()) >= LIVES * WRITES
        finally:
            for _, task in readers.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in readers.values()), return_exceptions=True)
