"""What a walsender does that says nothing: asked over the second connection, before the stream is given up.

A walsender that decodes a huge transaction of tables that nobody follows, or waits for a lock on the catalog, answers
no request. A new connection would find it in the way, and begin the same work from its start.
"""

from typing import Final, LiteralString

from cdc.source.connections import Connection, fetch

_WAITS_FOR_US: Final = frozenset({"Client", "Activity"})
"""Kinds of waits for the reader, or for something to do: one who waits so has answered, and the way to us is broken."""

_WALSENDER: Final[LiteralString] = """
    SELECT wait_event_type AS kind, wait_event AS event FROM pg_stat_activity
    WHERE pid = %s AND backend_type = 'walsender'
"""


async def read_work(connection: Connection, pid: int) -> str | None:
    """What the walsender is busy with; None if it is gone, or does nothing that would keep it from answering."""
    rows = await fetch(connection, _WALSENDER, pid)
    return work_of(rows[0]["kind"], rows[0]["event"]) if rows else None


def work_of(kind: str | None, event: str | None) -> str | None:
    """The same from what the server says that it waits for; a process that computes waits for nothing."""
    if kind is None:
        return "it computes"
    return None if kind in _WAITS_FOR_US else f"it waits for {event} ({kind})"
