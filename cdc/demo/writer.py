"""Who works in the shop: runs its transactions against Postgres, one after the other, and counts what is committed."""

import asyncio
from typing import Final

import psycopg

from cdc.demo.shop import Shop, Transaction
from cdc.demo.tables import CUSTOMERS_AT_FIRST, SCHEMA
from cdc.demo.tally import Tally

PAUSE_SECONDS: Final = 0.02
"""Between two transactions: some forty a second, which a busy laptop still does beside everything else."""


class RowsDiffer(Exception):
    """Postgres says another number of rows than the shop: a defect of the demo."""


class Writer:
    """One connection to the shop's database."""

    def __init__(self, url: str, shop: Shop) -> None:
        self.tally = Tally()
        self._url = url
        self._shop = shop
        self._is_over = asyncio.Event()

    async def open_shop(self) -> None:
        """Make the tables."""
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            await connection.execute(SCHEMA)
        self.tally.rows["customers"] = CUSTOMERS_AT_FIRST

    async def work(self) -> None:
        """Until `close`; what was begun by then is ended."""
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
            while not self._is_over.is_set():
                await self._run(connection, self._shop.next())
                await asyncio.sleep(PAUSE_SECONDS)

    def close(self) -> None:
        """No more transactions."""
        self._is_over.set()

    async def _run(self, connection: "psycopg.AsyncConnection[tuple[object, ...]]", transaction: Transaction) -> None:
        async with connection.transaction(force_rollback=transaction.is_rolled_back):
            for one in transaction.statements:
                cursor = await connection.execute(one.sql, one.values)
                if cursor.rowcount != one.rows:
                    raise RowsDiffer(f"{cursor.rowcount} rows instead of {one.rows}: {one.sql}")
        if transaction.is_rolled_back:
            self.tally.rolled_back += 1
        else:
            self.tally.committed(transaction.statements, is_large=transaction.is_large)
