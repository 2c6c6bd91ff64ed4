"""Takes the steps of the ladder in a running server: events, a pause of births, the end of a shape.

Invariants:
    it acts on looks at the slot that are new, and asks neither server nor disk itself
    a shape ends in the collector's turn, and only if it holds the slot still
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from cdc.app import App
from cdc.beside import beside
from cdc.insurance.ladder import Ladder, Rung, Terms, Verdict, View
from cdc.limits import SLOT_LOOK_SECONDS
from cdc.status.custody import custody_of
from cdc.status.shape_facts import name_of
from cdc.status.slot_cost import Budget, SlotLook, budget_of
from cdc.status.slot_watch import SlotWatch
from cdc.wording import size_words
from flush_tracker.explanation import Hold
from storage.errors import StorageError
from storage.log_counts import flush_in_flight

logger = logging.getLogger(__name__)

WAL_BUDGET: Final = "wal_budget"
"""Why a shape ended that held the slot until the server was about to take it."""

_DOES: Final = {Rung.PAUSE: "no snapshot begins", Rung.END: "the shape that holds the slot will end"}
"""What a step does while it lasts."""


class Insurer:
    """Runs beside the stream."""

    def __init__(self, app: App, watch: SlotWatch, terms: Terms) -> None:
        self.terms = terms
        self.ladder = Ladder(terms)
        self.budget: Budget | None = None
        """As of the last look."""
        self._app = app
        self._watch = watch
        self._looked: SlotLook | None = None
        self._flush_seen: int | None = None
        self._told_why = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the context lasts."""
        async with beside(self._run(), "slot insurance"):
            yield

    async def _run(self) -> None:
        while True:
            try:
                await self.go_round()
            except Exception:
                logger.exception("slot insurance failed; it tries again")  # unnoticed it would insure nothing
            await asyncio.sleep(SLOT_LOOK_SECONDS)

    async def go_round(self) -> None:
        """Once."""
        self.ladder.seen(self._app.house.clocks.monotonic())
        view = self._view()
        if view is None:
            return
        verdict = self.ladder.look(view)
        if verdict.is_news:
            self._tell(verdict)
            if self.ladder.is_on(Rung.PAUSE):
                self._app.nursery.close("the slot keeps too much WAL: no snapshot begins until that is less")
            else:
                self._app.nursery.open()
        if verdict.rung is Rung.END and verdict.why_none != self._told_why:
            self._told_why = verdict.why_none
            if verdict.why_none:
                logger.warning("no shape ends for the WAL budget: %s", verdict.why_none)
        if verdict.ends is not None:
            await self._end(verdict.ends)

    @property
    def facts(self) -> dict[str, Any]:
        """For the status."""
        budget, ladder = self.budget, self.ladder
        return {
            "step": ladder.rung.name.lower(),
            "budget_bytes": None if budget is None else budget.bytes,
            "budget_is_own": None if budget is None else budget.is_own,
            "used_percent": None if budget is None else round(budget.share * 100, 1),
            "steps": {rung.name.lower(): round(share * 100, 3) for rung, share in self.terms.thresholds.items()},
            "does": self._does,
            "ends_nobody_because": self._told_why or None if ladder.rung is Rung.END else None,
        }

    def _view(self) -> View | None:
        """What is known now; None if that is what was known before."""
        look, house = self._watch.last, self._app.house
        now, is_disk_at_fault = house.clocks.monotonic(), self._is_disk_at_fault()
        if look is None or self._watch.fault is not None:
            return View(now, None)
        if look is self._looked:
            return None
        self._looked, self.budget = look, budget_of(look, self.terms.budget_bytes)
        if self.budget is None:  # the slot is gone, or nothing bounds it any more: only the second is calm
            return View(now, None if look.slot is None or look.slot.loss is not None else 0.0)
        explained = house.collector.tracker.explain(now)
        holder = explained.holder if explained.hold is Hold.ROWS else None
        kept = max(self.budget.retained_bytes, 1)
        return View(
            now,
            self.budget.share,
            (look.unconfirmed_bytes or 0) / kept,
            None if holder is None else holder.shape,
            0.0 if holder is None else holder.seconds,
            is_disk_at_fault,
        )

    def _is_disk_at_fault(self) -> bool:
        """A fault, or one flush that has been under way since the last look."""
        flush, seen = flush_in_flight(self._app.house.store), self._flush_seen
        self._flush_seen = flush
        faults = (self._app.house.store.fault, self._app.acknowledger.fault)
        return any(fault is not None for fault in faults) or (flush is not None and flush == seen)

    @property
    def _does(self) -> str:
        steps = [does for rung, does in _DOES.items() if self.ladder.is_on(rung)]
        return " and ".join(steps) or ("nothing is done yet" if self.ladder.rung else "all is as usual")

    def _tell(self, verdict: Verdict) -> None:
        level = logging.WARNING if verdict.rung > verdict.before else logging.INFO
        budget = self.budget
        if budget is None:
            logger.log(level, "nothing bounds the slot any more: %s", self._does)
            return
        logger.log(
            level,
            "the slot keeps %s of WAL, %.0f %% of %s of %s: %s%s",
            size_words(budget.retained_bytes),
            budget.share * 100,
            "--wal-budget" if budget.is_own else "max_slot_wal_keep_size",
            size_words(budget.bytes),
            self._does,
            self._custody_words() if level == logging.WARNING else "",
        )

    def _custody_words(self) -> str:
        house = self._app.house
        explained = house.collector.tracker.explain(house.clocks.monotonic())
        name = None if explained.holder is None else name_of(house, explained.holder.shape)
        custody = custody_of(self._looked, explained, name)
        return "" if custody is None else f"; held by {custody.holder}; freed by {custody.freed_by}"

    async def _end(self, number: int) -> None:
        house, budget = self._app.house, self.budget
        assert budget is not None, "without one the ladder is calm"
        async with house.turn:
            explained = house.collector.tracker.explain(house.clocks.monotonic())
            member = house.collector.members.get(number)
            if member is None or explained.holder is None or explained.holder.shape != number:
                return
            kept = f"{budget.share * 100:.0f} % of {size_words(budget.bytes)}"
            text = f"its rows hold the slot, which keeps {kept} of WAL: all shapes would end with the slot"
            try:
                await house.endings.end(member, WAL_BUDGET, text)
            except StorageError as fault:
                logger.error("the shape that holds the slot could not be ended: %s", fault)  # noqa: TRY400 - it says all
