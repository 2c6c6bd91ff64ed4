"""Puts the stand-ins in, by name, where the program's modules look for the real ones: psycopg's, and threads.

All else of the program runs as it is. A name that is gone is an error, so the table below keeps up with the program.
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from unittest import mock

from cdc.simulate.flushing import Flusher, WaitlessStore
from cdc.simulate.recovering import OpenDisk
from cdc.simulate.session import Session
from cdc.simulate.sql import Sql
from cdc.simulate.surroundings import Surroundings
from storage.compaction import CompactionOptions, compact


@contextlib.contextmanager
def standing_in(around: Surroundings) -> Iterator[None]:
    """Put all of them in."""
    sql = Sql(around)
    replaced: dict[str, object] = {
        "cdc.app.Session": lambda settings, known, waiting: Session(around, settings, known),  # noqa: ARG005
        "cdc.app.Flusher": lambda *arguments: Flusher(around, *arguments),
        "cdc.app.Store": WaitlessStore,
        "cdc.app._folder": lambda _: contextlib.nullcontext(around.disk),
        "shapes.household.connect_sql": sql.connect,
        "shapes.birth.connect_sql": sql.connect,
        "shapes.birth.SnapshotTransaction": sql,
        "shapes.birth.look": sql.look,
        "shapes.birth.flush_wal": sql.flush_wal,
        "shapes.birth.holders_of": sql.holders_of,
        "shapes.birth.copy_snapshot": sql.copy,
        "shapes.capture.look_at_all_running": sql.look_at_all_running,
        "shapes.housekeeping.look": sql.look,
        "cdc.recover.recovery.connect_once": sql.connect,
        "cdc.recover.recovery.drop_slot": sql.drop_slot,
        "cdc.recover.recovery.LocalDisk": lambda _: OpenDisk(around.disk),
        "shapes.restore.read_tables": sql.read_tables,
        "shapes.ground.read_tables": sql.read_tables,
        "shapes.reconciliation.read_tables": sql.read_tables,
        "shapes.nursery.find_tables": sql.find_tables,
        "shapes.folding.compact": partial(compact, options=CompactionOptions(segments_kept=1)),  # logs are short here
        "shapes.folding.FOLD_LOOK_SECONDS": around.random.choice((0.05, 0.3, 2.0)),  # a story is over in seconds
    }
    with contextlib.ExitStack() as stack:
        for name, stand_in in replaced.items():
            stack.enter_context(mock.patch(name, stand_in))
        yield
