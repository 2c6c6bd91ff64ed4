"""The logs of the shop's tables, as the catalog knows them; those that are not there yet are made.

A log is born with an empty base, since the shop opens with empty tables. A birth that a crash interrupted is not
continued: what there is of it goes, and the table gets another log under another number.
"""

from cdc.demo.shop import KEYS, TABLES, TX_FIRST
from storage.catalog import Catalog
from storage.catalog_records import Born, Ended, Life, Ready, Snapshot
from storage.log_facts import LogFacts
from storage.offset import SNAPSHOT_END
from storage.store import Store


def logs_of_tables(store: Store, catalog: Catalog, *, now: int) -> dict[str, int]:
    """The number of each table's log, which is ready when this returns."""
    return {table: _ready_log(store, catalog, table, now) for table in TABLES}


def _ready_log(store: Store, catalog: Catalog, table: str, now: int) -> int:
    shape = catalog.state.named(table)
    if shape is not None and shape.life is Life.READY:
        return shape.log
    if shape is not None:
        if shape.life is Life.BORN:
            catalog.append(Ended(shape.handle, SNAPSHOT_END, "interrupted"))
        store.remove_log(shape.log)  # again, perhaps: a crash may have come after the record
    log = catalog.state.next_log
    handle = f"{table}-{log}"
    definition = {"table": table, "columns": list(TABLES[table])}
    catalog.append(Born(handle, log, table, definition, Snapshot(xmin=1, xmax=1, xip=(), birth=TX_FIRST)))
    store.create_log(LogFacts(log, handle, KEYS[table]))
    base = store.new_base(log).finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=now)
    catalog.append(Ready(handle, base.number))
    return log
