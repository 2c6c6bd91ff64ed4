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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

import uvloop

from cdc.app import APPLICATION, AppSettings, running
from cdc.config.resolved import unknown_variables
from cdc.http.access import check_address
from cdc.http.application import application
from cdc.http.console.api import ConsoleApi
from cdc.http.console.page import CONSOLE_PATH
from cdc.http.console.recording import recording
from cdc.http.console.sampler import Sampler
from cdc.http.hosts import allowed_names
from cdc.http.server import listen, serving, url_of
from cdc.insurance.insurer import Insurer
from cdc.insurance.ladder import Terms
from cdc.limits import PROGRAM_STOP_SECONDS_MAX
from cdc.settle import settle_process
from cdc.source.connections import parsed
from cdc.source.errors import SourceError
from cdc.status.slot_watch import SlotWatch
from cdc.telemetry.logs import LogFormat, begin_logging
from shapes.errors import ShapeError
from shapes.http.app import ShapeApp
from shapes.http.settings import HttpSettings
from shapes.http.tokens import ShapeTokens
from shapes.service import ShapeService

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
    http: HttpSettings = field(default_factory=HttpSettings)
    token_secret: str | None = None
    token_keys: Path | None = None
    insurance: Terms = Terms()
    allowed_hosts: str | None = None
    """Names beside our own, with commas."""
    lake: Path | None = None
    """For the console to show."""


def run(settings: ServeSettings) -> None:
    """Serve until a signal; returns when all is flushed and confirmed. Raises what it refuses to go on with."""
    check_address(settings.host, settings.secret, insecure=settings.insecure)
    parsed(settings.app.database_url)  # it would be tried for ever otherwise, or refused when all is under way
    begin_logging(settings.log_format)
    for line in unknown_variables(os.environ):
        logger.warning("%s", line)
    settle_process()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings))
    except (SourceError, ShapeError) as refusal:
        refusal.advice = refusal.advice.replace(_RECOVER, f"`{recover_command(settings)}`")
        raise


def recover_command(settings: ServeSettings) -> str:
    """What a person runs who wants to go on with new snapshots."""
    slot = "" if settings.app.slot == APPLICATION else f" --slot {settings.app.slot}"
    return f"shapelog recover --data-dir {settings.app.data_dir}{slot} --resnapshot"


async def _serve(settings: ServeSettings) -> None:
    tokens = ShapeTokens.load(settings.token_secret, settings.token_keys)
    with (
        recording() as recorder,
        contextlib.closing(listen(settings.host, settings.port)) as listener,
        _signals() as told,
    ):
        async with running(settings.app) as app:
            watch = SlotWatch(settings.app.database_url, settings.app.slot, f"{APPLICATION} status")
            insurer = Insurer(app, watch, settings.insurance)
            sampler = Sampler(app, watch)
            shapes = ShapeApp(ShapeService(app.house, app.nursery), settings.http, tokens)
            console = ConsoleApi(settings.app, recorder, sampler, settings.lake)
            names = allowed_names(settings.host, settings.allowed_hosts, settings.secret)
            answering = application(app, watch, settings.secret, console, shapes, insurer, names)
            serves = serving(answering, listener, shapes.connections)
            async with watch.running(), insurer.running(), sampler.running(), serves:
                logger.info("listening at %s", url_of(listener))
                logger.info("the console is at %s%s", url_of(listener), CONSOLE_PATH)
                try:
                    await told.wait()
                finally:
                    shapes.stop()
        logger.info("stopped: all that could be is flushed and confirmed")


@contextlib.contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set. From then on the process has its last seconds."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    watchdog = threading.Timer(PROGRAM_STOP_SECONDS_MAX, _cut_short)
    watchdog.daemon = True

    def hear(number: int) -> None:
        if told.is_set():
            _cut_short()
        logger.info("stopping: %s", signal.Signals(number).name)
        told.set()
        watchdog.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear, number)
    yield told


def _cut_short() -> NoReturn:
    """End at once, as a crash would: threads that wait for a disk cannot be told to give up."""
    logger.warning("the stop was cut short; what was not confirmed is sent again after the next start")
    os._exit(CUT_SHORT)
