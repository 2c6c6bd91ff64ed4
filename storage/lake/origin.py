"""Whose rows a lake has: those of one data folder, whose logs have numbers that mean nothing in another. Pure.

Nothing is kept for that. A cut says of which life of a slot it is, and a folder's progress log remembers every life
that it had (A2); a cut has the handles of its tables, and a catalog remembers those. A folder that knows neither is
another one, or was begun anew. One that knows the life and is not as far as the cut is an older copy.
"""

from storage.catalog import CatalogState
from storage.lake.cuts import Cut
from storage.lake.errors import OtherData
from storage.progress import ProgressHistory


def refuse_other(cut: Cut, history: ProgressHistory, catalog: CatalogState) -> None:
    """Raise `OtherData` if the folder is not the one that a lake's newest cut was decided in."""
    last, latest = history.last_of(cut.incarnation), history.latest
    stands = None if latest is None else str(latest.incarnation)
    if last is not None and last.lsn < cut.lsn:
        message = "the data folder is an older copy: the lake is further than it ever was"
        raise OtherData(message, lake_has=cut.lsn, folder_has=last.lsn, stream=str(cut.incarnation))
    if last is None and not _knows_a_log(cut, catalog):
        message = "the lake was made from another data folder, or this one was begun anew"
        raise OtherData(message, lake_has=str(cut.incarnation), folder_has=stands)


def _knows_a_log(cut: Cut, catalog: CatalogState) -> bool:
    """Whether numbers of logs go on, as they do when only the stream was begun anew: no handle is given out twice."""
    return any(table.handle in catalog.shapes or table.handle in catalog.tombstones for table in cut.tables)
