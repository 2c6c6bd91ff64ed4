"""Births that are asked for when nobody can be born any more."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest

from shapes.nursery import Nursery
from storage.clocks import Clocks
from tests.unit.table_strategies import column, defined, table

ITEMS = table(column("id", 1, pk_index=0), column("v", 2))


async def test_who_asks_while_the_process_ends_is_told_and_leaves_nothing() -> None:
    """A request may come between the failure of one task and the end of all."""
    house: Any = SimpleNamespace(clocks=Clocks())
    nurseries: list[Nursery] = []

    async def ask_late(nursery: Nursery) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with pytest.raises(RuntimeError):
                nursery.order(defined(ITEMS))

    async def end_early() -> None:
        async with asyncio.TaskGroup() as group:
            nurseries.append(Nursery(house, group))
            group.create_task(ask_late(nurseries[0]))
            await asyncio.sleep(0)
            raise OSError

    with pytest.raises(ExceptionGroup):
        await end_early()
    gc.collect()  # a birth that nobody ever begins would be complained of now
    assert nurseries[0].orders == []
