"""The server as a process: starts the loop and HTTP, hears signals, ends in time.

Invariants:
    a signal ends it within PROGRAM_STOP_SECONDS_MAX, whatever the disk or the server does; a second one at once
    what it refuses to go on with leaves as one error; its hint is a command that can be run as it stands
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

import uvloop

from cdc.app import APPLICATION, AppSettings, running
from cdc.http.access import check_address
from cdc.http.application import application
from cdc.http.server import listen, serving, url_of
from cdc.limits import PROGRAM_STOP_SECONDS_MAX
from cdc.source.errors import SourceError
from cdc.status.slot_watch import SlotWatch
from cdc.telemetry.logs import LogFormat, begin_logging
from shapes.errors import ShapeError

logger = logging.getLogger(__name__)

CUT_SHORT: Final = 1
"""The exit code of a stop that took too long: nothing is lost, but the next start gets some of it again."""

_RECOVER: Final = "`shapelog recover --resnapshot`"


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What `shapelog serve` is told."""

    app: AppSettings
    host: str = "127.0.0.1"
    port: int = 3000
    secret: str | None = None
    insecure: bool = False
    log_format: LogFormat = LogFormat.TEXT


def run(settings: ServeSettings) -> None:
    """Serve until a signal; returns when all is flushed and confirmed. Raises what it refuses to go on with."""
    check_address(settings.host, settings.secret, insecure=settings.insecure)
    begin_logging(settings.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings))
    except (SourceError, ShapeError) as refusal:
        refusal.advice = refusal.advice.replace(_RECOVER, f"`{recover_command(settings)}`")
        raise


def recover_command(settings: ServeSettings) -> str:
    """What a person runs who wants to go on with new snapshots."""
    slot = "" if settings.app.slot == AppSettings.slot else f" --slot {settings.app.slot}"
    return f"shapelog recover --data-dir {settings.app.data_dir}{slot} --resnapshot"


async def _serve(settings: ServeSettings) -> None:
    with contextlib.closing(listen(settings.host, settings.port)) as listener, _signals() as stop:
        serve = asyncio.create_task(_run(settings, listener), name="serve")
        stopped = asyncio.create_task(stop.wait(), name="signals")
        await asyncio.wait([serve, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not serve.done():
            serve.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serve
        logger.info("stopped")
