"""The session: one slot's stream over all its connections, pulled by its consumer; the shell around the cores.

    async with Session(settings, known=lambda: ...) as session:
        while True:
            match await session.next():
                case Connected(attempt, ...): drop what is open, then ask for more (A3)
                case Arrived(attempt, event): a fragment, a relation, a keepalive, in order
                case Stopping(attempt, ...): flush at once and confirm (A4)
        session.confirm(attempt, lsn) whenever more is durable

Invariants:
    the server hears as flushed only what `confirm` said on this connection, or what was durable at its start (A1)
    each connection begins with one `Connected`; no event of an earlier connection comes after it (A3)
    a cancelled `next()` loses nothing, and never ends the stream
    what is read ahead of the consumer is a few batches (see `copy_both`); then TCP pushes back, and nothing piles up
    status replies and the watch for a shutdown go on however long the consumer is away
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import tenacity

from cdc.source.attempt import Attempt, Delivery
from cdc.source.connections import printable
from cdc.source.errors import ConnectionFault, Unreachable
from cdc.source.handshake import Claim, Settings, Waiting, application_name, open_attempt
from cdc.source.identity import Known
from cdc.source.limits import RECONNECT_SECONDS_MAX
from cdc.source.looking_back import Look
from cdc.source.lsn import LSN_ZERO, Lsn
from cdc.source.publisher import Publisher
from cdc.source.relations import Relations
from cdc.source.standstill import Standstill

log = logging.getLogger(__name__)

SHORT_LIFE_SECONDS: Final = 2 * RECONNECT_SECONDS_MAX
"""A connection that lived longer was a good one, as is one on which something was confirmed: after it, the first new
attempt is made at once again."""


def _log_waiting(what: str, holders: tuple[object, ...]) -> None:
    log.warning("waiting for %s: %s", what, "; ".join(map(str, holders)) or "nobody that can be named")


class Session:
    """One slot, read over as many connections as it takes."""

    def __init__(
        self,
        settings: Settings,
        *,
        known: Callable[[], Known | None],
        publisher: Publisher | None = None,
        waiting: Waiting = _log_waiting,
    ) -> None:
        self.settings = settings
        self.publisher = publisher or Publisher(settings.publication, settings.mode, waiting=waiting)
        self.relations = Relations()
        self._known = known
        self._waiting = waiting
        self._claim = Claim(application_name(settings.slot, secrets.token_hex(4)))
        self.attempts_count = 0
        """Connections that were made."""
        self.fault: ConnectionFault | None = None
        """Why there is none at present, if there was an attempt."""
        self.standstill = Standstill()
        self._attempt: Attempt | None = None
        self._ready: deque[Delivery] = deque()
        self._tries: tenacity.AsyncRetrying | None = None
        self._try: tenacity.AttemptManager | None = None
        self._reached = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def next(self) -> Delivery:
        """What comes next, reconnecting as often as needed. May be cancelled at any time."""
        while not self._ready:
            try:
                if self._attempt is None:
                    await self._connect()
                else:
                    self._ready.extend(await self._attempt.deliveries())
            except ConnectionFault as fault:
                await self._leave(fault)
            except Exception:
                # Asking again would meet it again, or go on behind a batch that was never decoded.
                await self._drop()
                raise
        return self._ready.popleft()

    def confirm(self, attempt: int, lsn: Lsn) -> None:
        """All before `lsn` is durable. Said of an earlier connection, it moves nothing: it may be about other rows."""
        if self._attempt is not None and self._attempt.number == attempt:
            self._attempt.confirm(lsn)
            self.standstill.passed(lsn)

    @property
    def attempt(self) -> Attempt | None:
        """The present connection, if there is one."""
        return self._attempt

    @property
    def look(self) -> Look | None:
        """What the server is looking up before the stream can begin, if that keeps us waiting."""
        return self._claim.look

    @property
    def is_receiving(self) -> bool:
        """Whether something has come that `next` has not handed on yet."""
        return self._attempt is not None and self._attempt.is_receiving

    @property
    def received(self) -> Lsn:
        """The greatest place of the WAL that the server spoke of on this connection."""
        return self._attempt.replies.received if self._attempt is not None else LSN_ZERO

    async def close(self) -> None:
        """End cleanly: the server hears the last confirmation."""
        attempt, self._attempt = self._attempt, None
        self._ready.clear()
        if attempt is not None:
            await attempt.close(goodbye=True)

    async def _connect(self) -> None:
        """One try, after the pause that is due; tenacity keeps count over tries and short-lived connections."""
        if self._tries is None:
            self._reached = time.monotonic()
            self._tries = aiter(
                tenacity.AsyncRetrying(
                    retry=tenacity.retry_if_exception_type(ConnectionFault),
                    wait=tenacity.wait_random_exponential(multiplier=0.2, max=self.settings.reconnect_seconds),
                    stop=self._is_hopeless,
                )
            )
        try:
            self._try = await anext(self._tries)
        except tenacity.RetryError as given_up:
            last = given_up.last_attempt.exception()
            server = printable(self.settings.conninfo)
            raise Unreachable(f"gave up: {last}", server=server) from None
        opened = await open_attempt(self.settings, self._known(), self.publisher, self._claim, self._waiting)
        self._reached = time.monotonic()
        self.attempts_count += 1
        self.fault = None
        self._attempt = Attempt(self.attempts_count, opened, self.settings, self.relations, self.publisher)
        log.info("connected to %s, attempt %d", printable(self.settings.conninfo), self.attempts_count)

    async def _leave(self, fault: ConnectionFault) -> None:
        log.warning("disconnected: %s", fault)
        self.fault = fault
        known = self._known()
        if known is not None and self.standstill.failed(fault, known.durable):
            log.error("the stream stands still: %s", self.standstill.fault)
        attempt = await self._drop()
        if attempt is not None and (attempt.was_good or time.monotonic() - attempt.started > SHORT_LIFE_SECONDS):
            self._tries = self._try = None
        if self._try is not None:
            with self._try:
                raise fault

    async def _drop(self) -> Attempt | None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            # Whoever cancels `next()` now shall not leave a connection half closed.
            await asyncio.shield(attempt.close())
        return attempt

    def _is_hopeless(self, _: tenacity.RetryCallState) -> bool:
        """Whether the server could not be reached for as long as we may try."""
        patience = self.settings.patience_seconds
        return patience is not None and time.monotonic() - self._reached > patience
