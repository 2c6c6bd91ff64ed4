"""From a connection string to a stream that has started: one attempt, with everything checked on the way.

    second connection -> lock -> publication -> stream's connection -> identity, verdict -> slot -> START_REPLICATION

The second connection (`control`) has the lock, and lives as long as the stream: its loss is the first sign that the
server shuts down, since Postgres ends ordinary sessions before it waits for its walsenders.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cdc.source.checks import START_UP, run_checks
from cdc.source.connections import Connection, connect_replication, connect_sql, fetch
from cdc.source.copy_both import CopyBoth, Framing, start_stream
from cdc.source.errors import (
    ConnectionFault,
    NotPublished,
    ServerUnfit,
    SlotBusy,
    SlotExists,
    StandbyServer,
    StreamRefused,
)
from cdc.source.facts import Level
from cdc.source.holders import Holder
from cdc.source.identity import (
    AheadGap,
    Behind,
    Fresh,
    Known,
    Lost,
    OtherHistory,
    OtherSystem,
    OtherTimeline,
    Proceed,
    PublicationChanged,
    ServerState,
    Unclaimed,
    compare_histories,
    judge,
    refusal,
)
from cdc.source.limits import (
    CONNECT_SECONDS_MAX,
    RECONNECT_SECONDS_MAX,
    SHUTDOWN_SECONDS_MAX,
    SLOT_CREATION_SECONDS_MAX,
)
from cdc.source.looking_back import Look, look_back
from cdc.source.lsn import LSN_ZERO, Lsn, format_lsn
from cdc.source.ownership import own_slot, share_publication
from cdc.source.publication import Mode, OldRow, quote
from cdc.source.publisher import Publisher
from cdc.source.refusals import stream_refusal
from cdc.source.server_facts import read_facts
from cdc.source.server_state import read_server_state
from cdc.source.slot import SlotState
from cdc.source.slot_commands import create_slot, read_slot
from cdc.source.slot_readers import busy_slot, free_slot

log = logging.getLogger(__name__)

APPLICATION_SLOT_CHARACTERS: Final = 40
"""Of the slot's name in `application_name`, which Postgres cuts at 63 bytes; the instance must survive."""

_SLOT_HELD: Final = "the slot, which a connection of ours that is lost still has"

Waiting = Callable[[str, tuple[Holder, ...]], None]
"""Told what is waited for and whom, whenever that changes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a session is for."""

    conninfo: str
    slot: str
    publication: str
    mode: Mode = "managed"
    tables: tuple[str, ...] = ()
    """Published before the first connection streams; more can be published at any time."""
    temporary: bool = False
    """The slot ends with the connection: nothing is left behind, and nothing is kept either."""
    adopt: bool = False
    """Take over a slot that exists, though nothing of ours says that we made it."""
    before_slot: Callable[[], None] = lambda: None
    """Called when there is no slot and ours is about to be made: a crash behind it must not leave that to nobody."""
    heartbeat_seconds: float | None = None
    patience_seconds: float | None = None
    """Give up when the server could not be reached for so long; None: never."""
    reconnect_seconds: float = RECONNECT_SECONDS_MAX
    shutdown_seconds: float = SHUTDOWN_SECONDS_MAX
    slot_creation_seconds: float = SLOT_CREATION_SECONDS_MAX
    old_row: OldRow = OldRow.LONG_VALUES
    """What must be known of the rows of `tables` before a change."""
    framing: Framing = Framing.AUTO

    @property
    def plugin_options(self) -> dict[str, str]:
        """What the output plugin is told to send."""
        return {"proto_version": "1", "publication_names": quote(self.publication), "messages": "true"}

    def start_command(self, start: Lsn) -> str:
        """START_REPLICATION knows no parameters: all is text."""
        options = ", ".join(f"{name} {_literal(value)}" for name, value in self.plugin_options.items())
        return f"START_REPLICATION SLOT {quote(self.slot)} LOGICAL {format_lsn(start)} ({options})"


@dataclass(slots=True)
class Claim:
    """What a process knows of its own dealings with the slot, beside what it keeps on disk."""

    application: str
    checked: bool = False
    """The server was found fit."""
    made_slot: bool = False
    """We saw that there was no such slot, and asked for it; the answer may be lost, but the slot is ours then."""
    look: Look | None = None
    """What the server is asked to look up at present."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An attempt that succeeded."""

    control: Connection
    replication: Connection
    stream: CopyBoth
    state: ServerState
    verdict: Proceed
    start: Lsn
    flushed: Lsn
    """What the server may be told as flushed from the beginning: G, or nothing on another timeline."""
    sender_timeout_seconds: float
    facts: Mapping[str, str] = field(default_factory=dict)


async def open_attempt(
    settings: Settings, known: Known | None, publisher: Publisher, claim: Claim, waiting: Waiting
) -> Opened:
    """Connect, check and start; whatever goes wrong, no connection stays open."""
    opened: list[Connection] = []
    try:
        control = await connect_sql(settings.conninfo, claim.application)
        opened.append(control)
        await _refuse_standby(control)
        if not claim.checked:
            await _refuse_unfit(settings, control)
            claim.checked = True
        await own_slot(
            control,
            settings.slot,
            claim.application,
            lambda holder: waiting("the slot's owner", (holder,) if holder else ()),
        )
        await share_publication(control, settings.publication)
        replication = await connect_replication(settings.conninfo, claim.application)
        opened.append(replication)
        return await _start(settings, known, publisher, claim, control, replication, waiting)
    except BaseException:
        for connection in opened:
            await connection.close()
        raise


def application_name(slot: str, instance: str) -> str:
    """How our sessions are named on the server: the instance tells two processes apart."""
    return f"shapelog {slot[:APPLICATION_SLOT_CHARACTERS]} {instance}"


async def _refuse_standby(control: Connection) -> None:
    """During a failover the standby may answer before it is promoted, and its slots are not yet what they will be."""
    rows = await fetch(control, "SELECT pg_is_in_recovery() AS standby")
    if rows[0]["standby"]:
        raise StandbyServer("this server is a standby")


async def _refuse_unfit(settings: Settings, control: Connection) -> None:
    """The doctor's checks, once for a process."""
    facts = await read_facts(
        control, settings.slot, settings.publication, settings.tables, settings.mode, sample_seconds=0
    )
    for found in run_checks(facts):
        if found.level is Level.FAULT and found.check in START_UP:
            raise ServerUnfit(found.text, hint="Run " + " ".join(found.mend))
        if found.level is Level.WARNING:
            log.warning("%s: %s; %s", found.check, found.text, " ".join(found.mend))


async def _start(
    settings: Settings,
    known: Known | None,
    publisher: Publisher,
    claim: Claim,
    control: Connection,
    replication: Connection,
    waiting: Waiting,
) -> Opened:
    options = settings.plugin_options
    if known is None:
        # Before the slot: a slot that is older than its publication cannot be read.
        await publisher.publish(control, settings.tables, settings.old_row)
    publication = await publisher.connected(control)
    await free_slot(control, settings.slot, _of_ours(settings), lambda holder: waiting(_SLOT_HELD, (holder,)))
    state = await read_server_state(control, replication, settings.slot, publication, options)
    verdict = judge(known, state, adopt=settings.adopt or claim.made_slot)
    if isinstance(verdict, Unclaimed | Lost | AheadGap | OtherSystem):
        raise refusal(verdict)
    if state.identity.publication.oid is None:
        raise NotPublished(
            f"the publication {settings.publication!r} is gone, and the slot cannot be read without it",
            hint="Who dropped it? Run `shapelog recover --resnapshot`: publication and slot are made anew.",
        )
    if known is not None and isinstance(verdict, Behind | PublicationChanged):
        verdict = await _other_history(settings, control, claim, known, verdict, state.slot) or verdict
    if isinstance(verdict, Fresh) and verdict.slot is None:
        await asyncio.to_thread(settings.before_slot)
        claim.made_slot = True
        try:
            start = await create_slot(
                control,
                replication,
                settings.slot,
                temporary=settings.temporary,
                waiting=lambda holders: waiting("transactions that are older than the slot", holders),
                seconds_max=settings.slot_creation_seconds,
            )
        except SlotExists:
            claim.made_slot = False  # somebody else was faster
            raise
        state = replace(state, slot=await read_slot(control, settings.slot))
        flushed = start
    elif isinstance(verdict, Fresh):
        assert verdict.slot is not None, "the case above"
        start = flushed = verdict.slot.confirmed_flush_lsn or LSN_ZERO
    elif isinstance(verdict, OtherTimeline | OtherHistory):
        start, flushed = verdict.confirmed, LSN_ZERO
    else:
        assert known is not None, "without it the verdict is Fresh"
        start, flushed = verdict.start, known.durable
    rows = await fetch(replication, "SELECT setting::float8 AS ms FROM pg_settings WHERE name = 'wal_sender_timeout'")
    stream = await _start_stream(settings, control, replication, start)
    try:
        await _check_position(settings, control, start)
    except BaseException:
        stream.close()
        raise
    return Opened(control, replication, stream, state, verdict, start, flushed, rows[0]["ms"] / 1000)


async def _other_history(
    settings: Settings,
    control: Connection,
    claim: Claim,
    known: Known,
    verdict: Behind | PublicationChanged,
    slot: SlotState | None,
) -> OtherHistory | None:
    """Compare what a slot that is behind us would send again with what we had."""
    position = verdict.position if isinstance(verdict, PublicationChanged) else verdict
    if not isinstance(position, Behind):
        return None
    restart = None if slot is None else slot.restart_lsn
    claim.look = Look(restart or position.confirmed, known.durable, control.info.backend_pid, time.monotonic())
    log.info("the slot has forgotten what we confirmed, and is asked what it would send again: %s", claim.look)
    try:
        again = await look_back(control, settings.slot, settings.plugin_options, known.durable)
    except SlotBusy as busy:
        raise await busy_slot(control, settings.slot, _of_ours(settings), busy.message) from None
    finally:
        claim.look = None
    return compare_histories(known, position.confirmed, again)


def _of_ours(settings: Settings) -> str:
    """How the names of all connections begin that may ever have read this slot for us."""
    return application_name(settings.slot, "")


async def _start_stream(settings: Settings, control: Connection, replication: Connection, start: Lsn) -> CopyBoth:
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            return await start_stream(replication, settings.start_command(start), settings.framing)
    except TimeoutError:
        raise ConnectionFault("the server did not answer START_REPLICATION in time") from None
    except StreamRefused as refused:
        if refused.sqlstate == "55006":
            raise await busy_slot(control, settings.slot, _of_ours(settings), refused.message) from None
        raise stream_refusal(refused) from None


async def _check_position(settings: Settings, control: Connection, start: Lsn) -> None:
    """That nobody moved the slot after it was judged. From here on only this stream moves it."""
    slot = await read_slot(control, settings.slot)
    if slot is None:
        raise ConnectionFault("the slot ended in the moment in which it was to be read")
    confirmed = slot.confirmed_flush_lsn or LSN_ZERO
    if confirmed > start:
        raise refusal(AheadGap(confirmed, start))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
