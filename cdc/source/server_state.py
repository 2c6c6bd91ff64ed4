"""What the server says of itself on a new connection: the facts that `identity.judge` compares."""

import re
from collections.abc import Mapping
from typing import Final

from cdc.source.connections import Connection, fetch
from cdc.source.errors import SourceError, TwoServers
from cdc.source.identity import Identity, ServerState
from cdc.source.lsn import Lsn, parse_lsn
from cdc.source.publication import PublicationState
from cdc.source.slot_commands import read_slot

_HISTORY_LINE: Final = re.compile(r"(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)")


async def read_server_state(
    control: Connection, replication: Connection, slot: str, publication: PublicationState, options: Mapping[str, str]
) -> ServerState:
    """Ask the server over both connections, which must lead to the same one."""
    system = (await fetch(replication, "IDENTIFY_SYSTEM"))[0]
    await _refuse_two_servers(control, replication)
    timeline = int(system["timeline"])
    return ServerState(
        Identity(
            system["systemid"],
            timeline,
            system["dbname"],
            slot,
            dict(options),
            publication,
        ),
        await read_slot(control, slot),
        parse_lsn(system["xlogpos"]),
        await _read_switch_points(replication, timeline),
    )


async def _refuse_two_servers(control: Connection, replication: Connection) -> None:
    """One of several hosts may be a standby of the other: the same system, but not the same slots."""
    pid = (await fetch(replication, "SELECT pg_backend_pid() AS pid"))[0]["pid"]
    query = "SELECT application_name FROM pg_stat_activity WHERE pid = %s AND backend_type = 'walsender'"
    seen = await fetch(control, query, pid)
    if [row["application_name"] for row in seen] != [replication.info.parameter_status("application_name")]:
        raise TwoServers("two connections with the same settings lead to two servers")


async def _read_switch_points(replication: Connection, timeline: int) -> dict[int, Lsn]:
    if timeline == 1:
        return {}  # the first has no history, and asking for it is an error
    try:
        rows = await fetch(replication, f"TIMELINE_HISTORY {timeline}")
    except SourceError:
        return {}  # the server has lost the file: the switch point is unknown, which is an answer
    content = rows[0]["content"]
    return parse_history(content.decode("utf-8", "replace") if isinstance(content, bytes) else content)


def parse_history(content: str) -> dict[int, Lsn]:
    """The lines of a history file: a timeline, where it was left, and why."""
    lines = map(_HISTORY_LINE.match, content.splitlines())
    return {int(found[1]): parse_lsn(found[2]) for found in lines if found}
