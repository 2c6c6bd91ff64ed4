"""Readers of every kind beside a writer and restarts: each state that they show was one of committed transactions.

Every transaction moves an amount between two accounts, so the sum never changes: a torn transaction, a row twice or a
lost one would show in a state that a reader calls up to date.
"""

import asyncio
import contextlib
import random
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import psycopg

from shapes.client import Shape, ShapeStream
from shapes.http.settings import HttpSettings
from tests.postgres import Database
from tests.shape_server import SHAPE, serving_shapes
from tests.waiting import eventually

ACCOUNTS, SUM = 12, 1_200
TABLE = "CREATE TABLE accounts (id int PRIMARY KEY, amount int NOT NULL)"
FILL = "INSERT INTO accounts SELECT g, 100 FROM generate_series(1, 12) g"
QUICK = HttpSettings(long_poll_seconds=1.0, sse_seconds=1.0)
LIVES = 3
TRANSACTIONS = 120


def total(rows: dict[str, dict[str, str]]) -> int:
    return sum(int(row["amount"]) for row in rows.values())


@dataclass
class EventReader:
    """Follows by events, as a browser does: applies what came when it hears `up-to-date`, and resumes behind it."""

    url: str
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    offset: str = "-1"
    handle: str = ""
    states: int = 0

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
            assert answer.status_code in {200, 503}, await answer.aread()
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
        if messages[-1]["headers"].get("control") == "up-to-date":
            self.states += 1
            assert total(self.rows) == SUM


async def follow(shape: Shape, states: list[int]) -> None:
    while True:
        await shape.catch_up_async()
        states.append(sum(row["amount"] for row in shape.rows))


async def write(database: Database, seed: int) -> None:
    chance = random.Random(seed)
    async with await psycopg.AsyncConnection.connect(database.conninfo()) as connection:
        for _ in range(TRANSACTIONS):
            amount = chance.randint(1, 50)
            for account, by in zip(chance.sample(range(1, ACCOUNTS + 1), 2), (amount, -amount), strict=True):
                await connection.execute("UPDATE accounts SET amount = amount + %s WHERE id = %s", [by, account])
            await connection.commit()


async def test_every_state_was_one_of_committed_transactions(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(TABLE, FILL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}{SHAPE}"
    shape, states, events = Shape(ShapeStream(url, "accounts")), list[int](), EventReader(url)
    readers = [asyncio.create_task(follow(shape, states)), asyncio.create_task(events.run())]
    try:
        for life in range(LIVES):
            async with serving_shapes(newest_database, tmp_path, QUICK, port=port, chunk_bytes=400) as server:
                await write(newest_database, life)
                await server.living.caught_up()
                expected = dict(newest_database.execute("SELECT id, amount FROM accounts"))

                def is_same() -> bool:
                    for reader in readers:
                        if reader.done():
                            reader.result()
                    seen = {int(row["id"]): int(row["amount"]) for row in events.rows.values()}
                    return expected == seen == {row["id"]: row["amount"] for row in shape.rows}  # noqa: B023

                await eventually(is_same, "both to have the table's rows", 30)
        assert set(states) == {SUM}
        assert min(len(states), events.states) > LIVES
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await shape.aclose()
