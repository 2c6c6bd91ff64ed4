"""Bringing a lake up to date, once or for ever: a loop around `LakeWriter.step`, and what is said of it.

It is its own loop and no streaming query, since a checkpoint of the engine would be a second truth.
"""

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Final

import tenacity

from storage.catalog import CatalogReader
from storage.disk import LocalDisk, folder_of
from storage.errors import FileVanished, SharedDiskFault, StorageError, named_faults
from storage.lake.errors import CommitUnknown, LaggingWriter, LakeWaits, SparkGone, TaskFailed
from storage.lake.lake_layout import CUTS, DELTA
from storage.lake.limits import ONCE_ATTEMPTS_MAX, STALL_SECONDS, WRITER_PAUSE_SECONDS_MAX
from storage.lake.loads import Runner
from storage.lake.metrics import LakeMetric, LakeMetrics, Trigger
from storage.lake.next_cut import read_cut
from storage.lake.origin import refuse_other
from storage.lake.records import record_numbers
from storage.lake.refusals import (
    refuse_mixed_folders,
    refuse_no_folders,
    refuse_other_files,
    refuse_unknown_shapes,
)
from storage.lake.retire import retire
from storage.lake.settings import known_settings, settle
from storage.lake.versions import Version
from storage.lake.writer import LakeWriter, Step
from storage.progress import ProgressReader

logger: Final = logging.getLogger(__name__)

_PASSING: Final = (SharedDiskFault, FileVanished, TaskFailed, CommitUnknown)
"""Faults after which the same is tried again; nothing was published."""

_RETIRE_EVERY: Final = 20
"""Versions between two looks at what is old."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one step did, for those who print it."""

    step: Step
    seconds: float


@dataclass(frozen=True, slots=True)
class Order:
    """What to materialize."""

    data: Path
    lake: Path
    shapes: tuple[str, ...] | None = None
    state_only: bool = False
    """A new lake keeps no history."""
    every_seconds: float | None = None
    """None: once."""
    adopts: bool = False
    """The lake may go over to this data folder from another."""
    stop: Event = field(default_factory=Event)
    metrics: LakeMetrics = field(default_factory=LakeMetrics)


def check_order(order: Order) -> None:
    """Refuse what cannot be done before anything is begun: wrong folders, shapes that are not there."""
    refuse_no_folders(order.data, order.lake)
    refuse_mixed_folders(order.data, order.lake)
    with folder_of(LocalDisk(order.data.resolve())) as data:
        catalog, progress = CatalogReader(data), ProgressReader(data)
        catalog.refresh()
        tables = {path.name for path in (order.lake / DELTA).glob("*")}
        refuse_unknown_shapes(order.shapes or (), catalog.state, tables)
        if not order.lake.exists():
            return
        with folder_of(LocalDisk(order.lake.resolve())) as lake:
            if known_settings(lake, order.shapes, state_only=order.state_only) is None:
                refuse_other_files(order.lake.resolve())
            if order.adopts:
                return
            newest = max(record_numbers(lake, CUTS), default=0)
            if (cut := read_cut(lake, newest)) is not None:
                progress.refresh()  # behind the cut, which another writer may have decided a moment ago
                catalog.refresh()
                refuse_other(cut, progress.history, catalog.state)


@contextmanager
def writing(order: Order, run: Runner, at: Callable[[str], None] = lambda _: None) -> Iterator[LakeWriter]:
    """A writer of the lake, which is made if it is not there."""
    check_order(order)
    with named_faults(str(order.lake)):
        order.lake.mkdir(parents=True, exist_ok=True)
    unique = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
    with folder_of(LocalDisk(order.data.resolve())) as data, folder_of(LocalDisk(order.lake.resolve())) as lake:
        settings = settle(lake, order.shapes, unique, state_only=order.state_only, adopts=order.adopts)
        yield LakeWriter(data, lake, run, settings=settings, unique=unique, now=lambda: time.time_ns() // 1000, at=at)


def materialize(
    order: Order, run: Runner, tell: Callable[[Told], None], at: Callable[[str], None] = lambda _: None
) -> None:
    """Bring the lake up to date, and keep it so if that is asked for."""
    with writing(order, run, at) as writer:
        order.metrics.version = writer.published()
        if order.every_seconds is None:
            _once(order, writer, tell)
            _rest(order, writer, tell)
            _retire(order, writer)
        else:
            _follow(order, order.every_seconds, writer, tell)


def _once(order: Order, writer: LakeWriter, tell: Callable[[Told], None]) -> None:
    """Finish what was begun, then one version at the present G. Faults that pass are tried again, a few times."""
    enough = tenacity.stop_after_attempt(ONCE_ATTEMPTS_MAX)
    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((*_PASSING, LaggingWriter)),
        wait=tenacity.wait_exponential(max=WRITER_PAUSE_SECONDS_MAX),
        stop=tenacity.stop_any(enough, tenacity.stop_when_event_set(order.stop)),
        sleep=tenacity.sleep_using_event(order.stop),
        before_sleep=_tell_of_retry,
        reraise=True,
    )
    while True:
        step = attempts(_version, order, writer, tell)
        if step.version is None or step.trigger is not Trigger.FOUND:
            return


def _version(order: Order, writer: LakeWriter, tell: Callable[[Told], None]) -> Step:
    """One step; raises if there is a version to be made, and it was not."""
    step = _step(order, writer, tell, even_if_quiet=True)
    if step.overtaken is not None:
        raise LaggingWriter(step.overtaken)
    if step.waits_for:
        raise LakeWaits("; ".join(f"{name}: {why}" for name, why in step.waits_for.items()))
    return step


def _tell_of_retry(state: tenacity.RetryCallState) -> None:
    assert state.outcome is not None, "it failed"
    logger.warning("trying again: %s", state.outcome.exception())


def _follow(order: Order, every_seconds: float, writer: LakeWriter, tell: Callable[[Told], None]) -> None:
    pause, moved, level, published = every_seconds, time.monotonic(), None, 0
    while not order.stop.is_set():
        began = time.monotonic()
        try:
            step = _step(order, writer, tell)
            if step.version is None and not step.stands_still:
                step = replace(step, version=_rest(order, writer, tell))
            is_found = step.version is not None and step.trigger is Trigger.FOUND
            pause = 0.0 if is_found else every_seconds  # it was decided a while ago, and may be without a table
        except (*_PASSING, SparkGone) as error:
            if order.stop.is_set():  # who ends us may have ended Spark's process too, and all work with it
                logger.info("what was begun is finished by whoever starts next: %s", error)
                return
            if isinstance(error, SparkGone):
                raise
            logger.warning("trying again: %s", error)
            pause = min(max(1.0, 2 * pause), max(WRITER_PAUSE_SECONDS_MAX, every_seconds))
            step = Step(waits_for={"": str(error)}, level=level)
        if step.version is not None:
            published += 1
            if published % _RETIRE_EVERY == 0:
                _retire(order, writer)
        if not step.stands_still or step.level != level:  # another writer may have brought it on
            moved, level = time.monotonic(), step.level
        elif time.monotonic() - moved > STALL_SECONDS:
            why = "; ".join(f"{name or 'all'}: {why}" for name, why in step.waits_for.items()) or step.overtaken
            logger.warning("the lake stands still for %.0f s, and G does not: %s", time.monotonic() - moved, why)
            moved = time.monotonic()
        order.stop.wait(max(0.0, pause - (time.monotonic() - began)))


def _step(order: Order, writer: LakeWriter, tell: Callable[[Told], None], *, even_if_quiet: bool = False) -> Step:
    """One step, counted and told."""
    began, metrics = time.monotonic(), order.metrics
    try:
        step = writer.step(even_if_quiet=even_if_quiet)
    except StorageError as error:
        metrics.count(LakeMetric.FAULTS, error.code)
        raise
    now = time.monotonic()
    metrics.looked(step, now - began, now)
    if step.version is not None or (even_if_quiet and step.overtaken is None):
        tell(Told(step, now - began))
    return step


def _rest(order: Order, writer: LakeWriter, tell: Callable[[Told], None]) -> Version | None:
    """Nothing comes in: files of a state that are many for its rows are joined. The version with them, if any."""
    began, metrics = time.monotonic(), order.metrics
    try:
        step = writer.rest()
    except StorageError as error:  # what was decided is finished by the next step
        metrics.count(LakeMetric.FAULTS, error.code)
        logger.warning("files of a state stay many for now: %s", error)
        return None
    if step.version is not None:
        now = time.monotonic()
        metrics.looked(replace(step, level=metrics.level), now - began, now)
        tell(Told(step, now - began))
    return step.version


def _retire(order: Order, writer: LakeWriter) -> None:
    try:
        retired = retire(order.lake.resolve(), now=time.time(), is_of_use=writer.is_of_use)
    except StorageError as error:
        logger.warning("old versions are kept for now: %s", error)
        return
    order.metrics.orphans = retired.orphans
    order.metrics.count(LakeMetric.RETIRED_FILES, amount=retired.files)
