"""The stream in place of `cdc.source.session`: the program's cores judge, decode and reply, over the model's frames.

Invariant: nothing of a process that has ended, or of a connection that broke, reaches the server
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cdc.simulate.publisher import Publisher, publication
from cdc.simulate.sender import Sender
from cdc.simulate.surroundings import Surroundings
from cdc.source.attempt import Arrived, Connected, Delivery, PublicationAltered
from cdc.source.handshake import Settings
from cdc.source.identity import (
    Behind,
    Fresh,
    Identity,
    Known,
    OtherHistory,
    OtherTimeline,
    Proceed,
    PublicationChanged,
    ServerState,
    compare_histories,
    judge,
    refusal,
)
from cdc.source.lsn import Lsn
from cdc.source.pgoutput import Decoder
from cdc.source.relations import Relations
from cdc.source.replies import Replies
from cdc.source.slot import PLUGIN, SlotState
from cdc.source.walsender import EPOCH_MICROSECONDS, CopyBatch

_WATCH_SECONDS: Final = 20.0
_FRAGMENT_CHANGES: Final = (1, 4, 15, 40, 1000)
_PIECES: Final = ((1, 2, 5), (3, 8), (8, 30), (40, 200))


@dataclass(slots=True)
class Attempt:
    """One connection."""

    number: int
    sender: Sender
    decoder: Decoder
    replies: Replies
    pieces: Sequence[int]
    """How many frames arrive at a time: on the next connection a transaction comes in other pieces."""
    is_broken: bool = False


class Session:
    """One slot over many connections, as `cdc.source.session` has it."""

    def __init__(self, around: Surroundings, settings: Settings, known: Callable[[], Known | None]) -> None:
        self.publisher = Publisher(around)
        self.attempt: Attempt | None = None
        self._around = around
        self._known = known
        self._adopt = settings.adopt
        self._before_slot = settings.before_slot
        self._relations = Relations()
        self._ready: deque[Delivery] = deque()
        self._count = 0
        around.break_connection = self._break

    async def next(self) -> Delivery:
        """What comes next, after the pauses that a real one has."""
        while not self._ready:
            if self.attempt is None:
                known = self._known()  # a real one has it in hand while it connects, which takes its time
                await self._around.pause(0.05)
                await self._connect(known)
            elif self.attempt.is_broken:
                self.attempt = None
            else:
                await self._receive(self.attempt)
        return self._ready.popleft()

    @property
    def is_receiving(self) -> bool:
        """Nothing is on its way for longer than a moment."""
        return False

    def confirm(self, attempt: int, lsn: Lsn) -> None:
        """Hand on what the flush tracker says; the server hears of it a moment later, or never."""
        if self._around.is_dead:
            return
        self._around.confirming(lsn)
        if self.attempt is not None and self.attempt.number == attempt:
            self.attempt.replies.flushed_to(lsn)
            loop = asyncio.get_running_loop()
            loop.call_later(self._around.some_seconds(0.01), self._tell, self.attempt)

    async def close(self) -> None:
        """End with a last reply."""
        if self.attempt is not None:
            self._tell(self.attempt)
            self.attempt = None

    def _tell(self, attempt: Attempt) -> None:
        if attempt is self.attempt and not attempt.is_broken and not self._around.is_dead:
            self._around.confirmed(attempt.replies.last(0.0).flushed)

    def _break(self) -> None:
        if self.attempt is not None:
            self.attempt.is_broken = True
            self._around.server_news.set()

    async def _receive(self, attempt: Attempt) -> None:
        around = self._around
        around.server_news.clear()
        if not attempt.sender.has_more and not around.keepalives_due:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_SECONDS):
                    await around.server_news.wait()
                    return
            self._watch(attempt)
            return
        await around.pause(0.3 if around.happens(around.lags) else 0.001)
        if attempt.sender.is_midway and around.happens(around.stalls):
            await around.pause(0.5)
            attempt.is_broken = attempt.is_broken or around.happens(around.stall_breaks)
        if attempt.is_broken:
            return
        frames = attempt.sender.take(around.random.choice(attempt.pieces))
        if around.keepalives_due:
            around.keepalives_due -= 1
            frames.append(attempt.sender.keepalive(wants_reply=False))
        events = attempt.decoder.feed(CopyBatch.join(frames))
        attempt.replies.heard(attempt.decoder.received, None, 0.0)
        self._ready += (Arrived(attempt.number, event) for event in events)
        if around.happens(0.05):
            self._watch(attempt)

    def _watch(self, attempt: Attempt) -> None:
        """As a real one does once a minute."""
        altered = self.publisher.changes()
        if altered:
            self._ready.append(PublicationAltered(attempt.number, altered))

    async def _connect(self, known: Known | None) -> None:
        around = self._around
        state = server_state(around)
        self.publisher.connected()
        verdict = judge(known, state, adopt=self._adopt)
        if not isinstance(verdict, Proceed):
            raise refusal(verdict)
        if known is not None and isinstance(verdict, Behind | PublicationChanged):
            self._see_that_it_is_ours(known)
        if isinstance(verdict, Fresh) and verdict.slot is None:
            await asyncio.to_thread(self._before_slot)
        start = self._start(verdict, known)
        self._count += 1
        replies = Replies(start, start, 0.0, 0.0)
        decoder = Decoder(self._relations, fragment_changes_max=around.random.choice(_FRAGMENT_CHANGES))
        sender = Sender(around.server, max(start, around.server.confirmed or 0))
        self.attempt = Attempt(self._count, sender, decoder, replies, around.random.choice(_PIECES))
        asyncio.get_running_loop().call_later(around.some_seconds(0.01), self._tell, self.attempt)
        self._ready.append(
            Connected(self._count, state.identity, verdict, start, state.wal_end, server_state(around).slot)
        )
        around.connected()

    def _see_that_it_is_ours(self, known: Known) -> None:
        """The model's server is never set back without a new timeline: no crash of either side may look like that."""
        confirmed = self._around.server.confirmed
        assert confirmed is not None, "the verdict speaks of a slot"
        below = [one for one in self._around.server.wal if one.is_sent and confirmed <= one.commit_lsn < known.durable]
        other = compare_histories(known, Lsn(confirmed), EPOCH_MICROSECONDS + below[-1].time if below else None)
        assert other is None, other

    def _start(self, verdict: Proceed, known: Known | None) -> Lsn:
        server = self._around.server
        if isinstance(verdict, Fresh):
            if server.confirmed is None:
                server.flush()
                server.confirm(server.insert_lsn)
            assert server.confirmed is not None, "it was made, or adopted"
            return Lsn(server.confirmed)
        if isinstance(verdict, OtherTimeline | OtherHistory):
            return verdict.confirmed
        assert known is not None, "without it the verdict is Fresh"
        return verdict.start


def server_state(around: Surroundings) -> ServerState:
    """What a new connection finds out first."""
    server = around.server
    slot = None
    if server.confirmed is not None:
        at = Lsn(server.confirmed)
        status, reason = ("lost", "wal_removed") if server.is_slot_lost else ("reserved", None)
        slot = SlotState("shapelog", PLUGIN, "shop", False, None, at, at, status, None, reason, None, None, None)
    identity = Identity("7", server.timeline, "shop", "shapelog", {}, publication(around.server))
    return ServerState(
        identity, slot, Lsn(server.flushed_lsn), {one: Lsn(at) for one, at in server.switch_points.items()}
    )
