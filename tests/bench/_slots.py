"""Slots of benchmarks: a walsender that was left a moment ago may still hold its slot."""

from typing import Any

import psycopg

from tests.waiting import until


def drop_slot(connection: "psycopg.Connection[tuple[Any, ...]]", name: str) -> None:
    def dropped() -> bool:
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
        except psycopg.errors.ObjectInUse:
            return False
        return True

    until(dropped, f"slot {name} to be free")
