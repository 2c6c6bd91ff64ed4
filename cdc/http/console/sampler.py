"""Takes a reading of the running program at even intervals, for the console's curves and the shapes' rates."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from functools import partial

from cdc.app import App
from cdc.beside import beside
from cdc.http.console.samples import Reading, Samples
from cdc.limits import SAMPLE_SECONDS
from cdc.status.change_rates import ChangeRates
from cdc.status.slot_watch import SlotWatch
from storage.log_counts import taken_rows
from storage.metrics import Metric


class Sampler:
    """Reads what others know: it asks no server and no disk."""

    def __init__(self, app: App, watch: SlotWatch) -> None:
        self.samples = Samples()
        self.rates = ChangeRates()
        self._app = app
        self._watch = watch

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take readings while the context lasts."""
        async with beside(self._run(), "sampler"):
            yield

    async def _run(self) -> None:
        while True:
            self.samples.add(self.reading())
            self.rates.look(self._app.house.clocks.monotonic(), partial(taken_rows, self._app.house.store))
            await asyncio.sleep(SAMPLE_SECONDS)

    def reading(self) -> Reading:
        """As of now; of the slot, as of the last look, if the server could be asked."""
        house = self._app.house
        look = self._watch.last if self._watch.fault is None else None  # an old look would tell of a calm that is none
        explained = house.collector.tracker.explain(house.clocks.monotonic())
        metrics = house.store.metrics
        return Reading(
            at=time.time(),
            seen_lsn=explained.seen.lsn or None,
            flushed_bytes=metrics.value(Metric.FLUSHED_BYTES),
            read_rows=metrics.value(Metric.READ_ROWS),
            lag_bytes=None if look is None else look.unconfirmed_bytes,
            lag_seconds=0.0 if explained.holder is None else round(explained.holder.seconds, 3),
            buffered_bytes=int(house.store.gauges()[Metric.BUFFERED_BYTES]),
            retained_bytes=None if look is None else look.retained_bytes,
        )
