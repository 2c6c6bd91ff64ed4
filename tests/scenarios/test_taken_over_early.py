"""A standby takes over when the process has just begun: what earlier processes had received counts as received (A2).

The story is told, not left to chance, for much has to come together: rows are durable, the slot has not heard of them,
the process ends, and the next one has its stream, but nothing out of it, when a standby takes over that never had them.
"""

from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

from cdc.simulate.definitions import facts_of
from cdc.simulate.run import play
from cdc.simulate.server import Transaction
from cdc.simulate.world import World
from cdc.source.attempt import Connected
from shapes.capture import Capture
from shapes.definition import Definition
from shapes.requests import Request, define
from storage.catalog_records import Life

ITEMS = 16401
SEEDS = range(20)
"""Worlds: in each the pieces in which the stream comes, and the pauses, are others."""


def insert(world: World, key: str, value: str) -> Transaction:
    """A row is committed, and visible, and on the server's disk."""
    server = world.around.server
    transaction = server.begin()
    server.change(transaction, "I", server.relations[ITEMS], None, (key, "1", value))
    server.commit(transaction)
    server.flush()
    server.show(transaction)
    world.around.server_news.set()
    return transaction


def the_shape(world: World) -> Definition:
    version = world.around.server.relations[ITEMS].version
    return define(Request(None, {}, None, None), facts_of(ITEMS, version))


def ready_logs(world: World) -> list[int]:
    """Those of shapes whose base is complete."""
    app = world.process.app
    living = app.house.registry.living() if app is not None else []
    return [one.log for one in living if one.shape.life is Life.READY]


def is_durable(world: World, transaction: Transaction) -> bool:
    """Whether the only shape has the transaction's row on its disk."""
    app = world.process.app
    assert app is not None, "it runs"
    return all(app.store.marks(log)[1].tx >= transaction.commit_lsn for log in ready_logs(world))


async def taken_over_early(world: World) -> None:
    """The story."""
    around, server = world.around, world.around.server
    world.is_healing = True  # nothing goes wrong but what is told here
    around.refusals = around.lost_snapshots = 0.0
    server.is_forgetful = False
    await world.until(lambda: world.process.service is not None)
    service = world.process.service
    assert service is not None
    insert(world, "1", "a")
    service.nursery.order(the_shape(world), "s")
    await world.until(lambda: bool(ready_logs(world)))
    kept = insert(world, "2", "a")
    await world.until(lambda: is_durable(world, kept))
    lost = insert(world, "3", "a")
    await world.until(lambda: is_durable(world, lost))
    await world.restart()
    around.connected = lambda: take_over(world, kept)
    await world.look()
    await world.until(lambda: server.timeline > 1)
    insert(world, "3", "b")
    await world.heal()


def take_over(world: World, kept: Transaction) -> None:
    """Of a standby that has no more than this, and whose slot knows of nothing since the shape was born."""
    around = world.around
    around.connected = lambda: None
    birth = next(iter(around.server.snapshots)).birth
    around.server.fork(kept.end_lsn, birth)
    around.break_connection()


async def forgetful(right: Callable[[Capture, Connected], Awaitable[None]], capture: Capture, first: Connected) -> None:
    """Connected, as if nothing had been received before."""
    received = capture._received
    await right(capture, first)
    capture._received = received


def test_a_shape_with_rows_that_the_standby_never_had_begins_anew() -> None:
    outcomes = [play(seed, taken_over_early) for seed in SEEDS]
    assert not [(one.seed, one.violation, one.cause) for one in outcomes if one.violation is not None]


def test_it_is_noticed_if_only_what_this_process_received_counts() -> None:
    right: Any = Capture._connected
    with mock.patch.object(Capture, "_connected", lambda capture, first: forgetful(right, capture, first)):
        assert all(play(seed, taken_over_early).violation for seed in SEEDS)
