"""What the stream delivers, of a backlog several fragments at a time: the shell around `joined_fragments`.

Only where it pays: a fragment that touches hundreds of shapes costs more for each of them than for its rows, and what
is done once for each table of a fragment costs as much as some hundred rows of it. Then the batches that were read
while the one before was dealt with are taken together.

Invariants:
    deliveries come in the order of the session; only fragments are joined, and only neighbours
    with a fragment in hand a silent server is waited for no longer than the fragment before took, of many shapes, or
        GATHER_GAP_SECONDS; and one that goes on sending no longer than that, or GATHER_SECONDS_MAX in all
    an error of the session comes behind the fragments before it; a cancelled `next` loses nothing
    the session is asked only while somebody waits in `next`: it never connects anew behind the collector's back
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from cdc.source.attempt import Arrived, Delivery
from cdc.source.fragments import Fragment
from shapes.joined_fragments import can_follow, joined
from shapes.limits import (
    GATHER_CHANGES_MIN,
    GATHER_GAP_SECONDS,
    GATHER_LIKE_BEFORE_SECONDS_MAX,
    GATHER_SECONDS_MAX,
    GATHER_SHAPES_MIN,
    GATHERED_BYTES_MAX,
    GATHERED_CHANGES_MAX,
    QUIET_SECONDS,
)
from shapes.quiet import QuietWatch


class Gathering:
    """Stands between the session and whoever takes what it brings."""

    def __init__(
        self,
        source: Callable[[], Awaitable[Delivery]],
        is_receiving: Callable[[], bool] = lambda: False,
        on_quiet: Callable[[], None] = lambda: None,
    ) -> None:
        """`source` may be cancelled at any time without a loss.

        `is_receiving`: whether something has come that it has not handed out yet. `on_quiet` is told that nothing
        comes, and nothing is in hand.
        """
        self._source = source
        self._is_receiving = is_receiving
        self._quiet = QuietWatch(is_receiving, on_quiet, QUIET_SECONDS)
        self._attempt = 0
        self._found: list[Fragment] = []
        """In hand; they can all be joined."""
        self._changes_count = self._rows_bytes = 0
        self._behind: Delivery | Exception | None = None
        """What came behind them, and cannot be joined."""
        self._handed_on_at: float | None = None

    async def next(self, touched_count: int) -> Delivery:
        """What comes next; `touched_count` is how many shapes the fragment before touched.

        It is called again when that has been dealt with.
        """
        clock = asyncio.get_running_loop().time
        spent_seconds = 0.0 if self._handed_on_at is None else clock() - self._handed_on_at
        try:
            return await self._next(touched_count, spent_seconds)
        finally:
            self._handed_on_at = clock()

    async def _next(self, touched_count: int, spent_seconds: float) -> Delivery:
        if not self._found:
            delivery = await self._take()
            if not (_pays(delivery, touched_count) and self._joins(delivery)):
                return delivery
        # So a row is at most twice as long on its way as it is without.
        like_before = min(spent_seconds, GATHER_LIKE_BEFORE_SECONDS_MAX) if touched_count >= GATHER_SHAPES_MIN else 0.0
        gap_seconds = max(like_before, GATHER_GAP_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(gap_seconds, GATHER_SECONDS_MAX)):
                await self._gather(gap_seconds)
        arrived = Arrived(self._attempt, joined(self._found))
        self._found, self._changes_count, self._rows_bytes = [], 0, 0
        return arrived

    async def _gather(self, gap_seconds: float) -> None:
        """Take what comes, until nothing has come for so long, and nothing is coming."""
        while self._behind is None and not self._is_full:
            try:
                delivery = await self._before_silence(gap_seconds)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is raised when its turn comes
                self._behind = error
            else:
                if delivery is None:
                    return
                if not self._joins(delivery):
                    self._behind = delivery

    @property
    def _is_full(self) -> bool:
        return self._changes_count >= GATHERED_CHANGES_MAX or self._rows_bytes >= GATHERED_BYTES_MAX

    async def _before_silence(self, seconds: float) -> Delivery | None:
        """What comes next; None if nothing does for so long."""
        try:
            async with asyncio.timeout(None) as silence:
                with QuietWatch(self._is_receiving, lambda: silence.reschedule(0.0), seconds):
                    return await self._source()
        except TimeoutError:
            if silence.expired():
                return None
            raise

    def _joins(self, delivery: Delivery) -> bool:
        """Take a fragment in hand, if it can be joined to those that are there."""
        if not isinstance(delivery, Arrived) or not isinstance(delivery.event, Fragment):
            return False
        fragment = delivery.event
        fits = not self._found or (delivery.attempt == self._attempt and can_follow(self._found, fragment))
        if fits:
            self._attempt = delivery.attempt
            self._found.append(fragment)
            self._changes_count += fragment.changes_count
            self._rows_bytes += fragment.rows_bytes
        return fits

    async def _take(self) -> Delivery:
        behind, self._behind = self._behind, None
        if isinstance(behind, Exception):
            raise behind
        if behind is not None:
            return behind
        with self._quiet:
            return await self._source()


def _pays(delivery: Delivery, touched_count: int) -> bool:
    """Whether what comes next would cost less together with it."""
    if touched_count >= GATHER_SHAPES_MIN:
        return True
    event = delivery.event if isinstance(delivery, Arrived) else None
    # So many changes at once are a backlog: a live transaction of few rows never waits for another.
    return isinstance(event, Fragment) and event.changes_count >= GATHER_CHANGES_MIN
