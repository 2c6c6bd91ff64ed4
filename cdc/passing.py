"""What lives as long as one command: a publication and a slot of the same name, and the command's end by a signal.

Invariants:
    a temporary slot goes with its connection; its publication is dropped by the command, or else by the next one
    a name is used once: process numbers are the same in many containers
"""

import asyncio
import secrets
import signal
from collections.abc import Coroutine
from typing import Final

import typer

from cdc.source.connections import Connection, connect_once, fetch
from cdc.source.errors import SourceError
from cdc.source.ownership import lock_holder
from cdc.source.publication import quote

NAME_PREFIX: Final = "shapelog_watch_"
"""Of slots and publications that live as long as one command."""


def passing_name() -> str:
    """One that nobody else has."""
    return f"{NAME_PREFIX}{secrets.token_hex(4)}"


async def drop_publication(conninfo: str, name: str) -> None:
    """Drop it, over a connection of its own; what cannot be done now, the next command does."""
    try:
        control = await connect_once(conninfo, "shapelog")
        try:
            await fetch(control, f"DROP PUBLICATION IF EXISTS {quote(name)}")
        finally:
            await control.close()
    except SourceError:
        typer.echo(f"the publication {name} is still there; the next watch or preflight drops it", err=True)


async def sweep(control: Connection) -> None:
    """Drop publications of commands that were killed: those whose lock nobody has."""
    rows = await fetch(
        control, "SELECT pubname AS name FROM pg_publication WHERE starts_with(pubname, %s)", NAME_PREFIX
    )
    for row in rows:
        if await lock_holder(control, row["name"]) is None:
            await fetch(control, f"DROP PUBLICATION IF EXISTS {quote(row['name'])}")


async def until_told(work: Coroutine[None, None, None]) -> int:
    """Run it to its end, or until a signal; the signal's number or 0. It cleans up before this returns."""
    running = asyncio.ensure_future(work)
    told: list[int] = []

    def stop(number: int) -> None:
        told.append(number)
        running.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        await running
    except asyncio.CancelledError:
        if not told:
            raise
    return told[0] if told else 0
