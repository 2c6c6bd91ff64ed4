"""The server's catalog, read into the facts that the pure modules decide from.

Invariant: no statement asks for a user table's lock. `pg_partition_tree` and `pg_publication_tables` do: a start would
wait for a VACUUM FULL of any one table, and the slot with it.
"""

from collections.abc import Iterable
from typing import Final, LiteralString

from psycopg.rows import DictRow

from cdc.source.connections import Connection, fetch
from cdc.source.publication import ROW_ACTIONS, SCHEMAS_SINCE, Member, PublicationState, TableState

# As JSON, since each version of Postgres has other columns.
_PUBLICATION: Final[LiteralString] = """
    SELECT p.xmin::text::bigint AS xmin, pg_get_userbyid(p.pubowner) AS owner, to_jsonb(p) AS facts
    FROM pg_publication p WHERE p.pubname = %s
"""

_MEMBERS: Final[LiteralString] = """
    SELECT r.prrelid::bigint AS member, r.oid::bigint AS oid, r.xmin::text::bigint AS xmin,
           n.nspname || '.' || c.relname AS name, to_jsonb(r) ->> 'prqual' AS filter,
           (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
            WHERE a.attrelid = c.oid
              AND a.attnum::text = ANY (string_to_array(to_jsonb(r) ->> 'prattrs', ' '))) AS columns
    FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE r.prpubid = %s
"""

_SCHEMAS: Final[LiteralString] = """
    SELECT r.pnnspid::bigint AS member, r.oid::bigint AS oid, r.xmin::text::bigint AS xmin, n.nspname AS name,
           NULL AS filter, NULL AS columns
    FROM pg_publication_namespace r JOIN pg_namespace n ON n.oid = r.pnnspid WHERE r.pnpubid = %s
"""

# Each alteration gives a row another number or another writer, and numbers grow: the sums are others then.
_MARK: Final[LiteralString] = """
    SELECT p.oid::bigint AS oid, p.xmin::text::bigint AS xmin, r.rows, r.sum
    FROM pg_publication p, LATERAL (
        SELECT count(*) AS rows, coalesce(sum(r.oid::bigint + r.xmin::text::bigint), 0)::text AS sum
        FROM pg_publication_rel r WHERE r.prpubid = p.oid) r
    WHERE p.pubname = %s
"""

_MARK_OF_SCHEMAS: Final[LiteralString] = """
    SELECT count(*) AS rows, coalesce(sum(r.oid::bigint + r.xmin::text::bigint), 0)::text AS sum
    FROM pg_publication_namespace r JOIN pg_publication p ON p.oid = r.pnpubid WHERE p.pubname = %s
"""

# A table's dependency on its schema is written anew by SET SCHEMA, and by nothing else; its row in pg_class also by a
# TRUNCATE, a VACUUM FULL, a GRANT.
_PLACED: Final[LiteralString] = """
    SELECT c.oid::text AS member, d.xmin::text AS mark
    FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
    WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = ANY (%s::oid[])
      AND d.classid = 'pg_class'::regclass AND d.deptype = 'n' AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
"""

# Every partitioned table that is published by itself, its schema or as one of all, and the way down to each leaf. The
# xmin of a step tells a partition that was detached and attached again from one that stayed. One that is being detached
# is not published any more.
_PARTITIONS: Final[LiteralString] = """
    WITH RECURSIVE tree (root, at, path) AS (
        SELECT c.oid, c.oid, '' FROM pg_class c
        WHERE c.relkind = 'p' AND (c.oid = ANY (%s::oid[])
            OR (NOT c.relispartition AND (%s OR c.relnamespace = ANY (%s::oid[]))))
        UNION ALL
        SELECT tree.root, i.inhrelid, format('%%s/%%s:%%s', tree.path, i.inhrelid, i.xmin)
        FROM tree JOIN pg_inherits i ON i.inhparent = tree.at JOIN pg_class c ON c.oid = i.inhparent
        WHERE c.relkind = 'p' AND (to_jsonb(i) ->> 'inhdetachpending') IS DISTINCT FROM 'true')
    SELECT tree.root::text, tree.at::text AS leaf, tree.path, c.relkind = 'p' AS is_inner
    FROM tree JOIN pg_class c ON c.oid = tree.at
"""

_LEAVES: Final[LiteralString] = """
    c.relkind <> 'p' AND c.oid IN (
        WITH RECURSIVE tree (at) AS (
            SELECT %s::oid
            UNION ALL
            SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.at JOIN pg_class p ON p.oid = tree.at
            WHERE p.relkind = 'p')
        SELECT at FROM tree) AND c.oid <> %s::oid
"""

_SENT: Final[LiteralString] = """
    c.relkind = 'r' AND c.relpersistence = 'p' AND c.oid >= 16384  -- below are those of the system
    AND (c.oid = ANY (%s::oid[]) OR %s OR c.relnamespace = ANY (%s::oid[]))
"""

_TABLES: Final[LiteralString] = """
    SELECT c.oid::bigint AS oid, n.oid::bigint AS schema_oid, n.nspname AS schema, c.relname AS name,
           c.relkind::text AS kind, c.relpersistence::text AS persistence, c.relreplident::text AS replica_identity,
           EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid
                   AND i.indimmediate) AS has_key,
           coalesce(pg_partition_root(c.oid)::oid, c.oid)::bigint AS root, c.relrowsecurity AS row_security,
           ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
                 AND NOT a.attisdropped AND a.attgenerated <> '' ORDER BY a.attnum) AS generated_columns,
           ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
                 AND NOT a.attisdropped AND a.attstorage <> 'p' ORDER BY a.attnum) AS toastable_columns
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
"""


async def read_publication(connection: Connection, name: str) -> PublicationState:
    """The publication as one statement after another sees it; a change in between shows at the next look."""
    rows = await fetch(connection, _PUBLICATION, name)
    if not rows:
        return PublicationState(name)
    facts, oid = rows[0]["facts"], int(rows[0]["facts"]["oid"])
    schemas = []
    if connection.info.server_version >= SCHEMAS_SINCE:
        schemas = await fetch(connection, _SCHEMAS, oid)
    members = _members(await fetch(connection, _MEMBERS, oid))
    of_schemas = [row["member"] for row in schemas]
    return PublicationState(
        name,
        oid,
        rows[0]["xmin"],
        rows[0]["owner"],
        facts["puballtables"],
        facts.get("pubviaroot", False),
        tuple(action for action in ROW_ACTIONS if facts[f"pub{action}"]),
        _generated(facts.get("pubgencols")),
        members,
        _members(schemas),
        _partitions(await fetch(connection, _PARTITIONS, list(members), facts["puballtables"], of_schemas)),
        {row["member"]: row["mark"] for row in await fetch(connection, _PLACED, of_schemas)} if of_schemas else {},
    )


async def read_mark(connection: Connection, name: str) -> tuple[object, ...]:
    """Something that is another once the publication or its lists were altered: far cheaper than to read it."""
    rows = await fetch(connection, _MARK, name)
    if connection.info.server_version >= SCHEMAS_SINCE:
        rows += await fetch(connection, _MARK_OF_SCHEMAS, name)
    return tuple(value for row in rows for value in row.values())


def _partitions(rows: Iterable[DictRow]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        leaves = found.setdefault(row["root"], {})
        if not row["is_inner"]:
            leaves[row["leaf"]] = row["path"]
    return found


def _generated(setting: object) -> str:
    return "" if setting is None else str(setting)


def _members(rows: Iterable[DictRow]) -> dict[int, Member]:
    return {
        row["member"]: Member(
            row["oid"], row["xmin"], row["name"], row["filter"], None if row["columns"] is None else (*row["columns"],)
        )
        for row in rows
    }


async def find_tables(connection: Connection, names: Iterable[str]) -> dict[str, TableState | None]:
    """Tables by their names as SQL has them (`orders`, `public.orders`, `"Odd Name"`); None for those that are not."""
    found: dict[str, TableState | None] = {}
    for name in names:
        rows = await fetch(connection, _TABLES + "WHERE c.oid = to_regclass(%s)", name)
        found[name] = _table(rows[0]) if rows else None
    return found


async def read_tables(connection: Connection, oids: Iterable[int]) -> dict[int, TableState]:
    """Tables by their oids; those that are gone are left out."""
    rows = await fetch(connection, _TABLES + "WHERE c.oid = ANY (%s::oid[])", list(oids))
    return {row["oid"]: _table(row) for row in rows}


async def read_leaves(connection: Connection, root: int) -> tuple[TableState, ...]:
    """The leaf partitions of a partitioned table, at whatever depth; none for an ordinary table."""
    rows = await fetch(connection, _TABLES + "WHERE " + _LEAVES + " ORDER BY c.oid", root, root)
    return tuple(map(_table, rows))


async def read_published(connection: Connection, publication: str) -> dict[int, TableState]:
    """The tables whose changes the publication sends: leaves, where tables are partitioned."""
    state = await read_publication(connection, publication)
    named = [*state.tables, *(int(leaf) for leaves in state.partitions.values() for leaf in leaves)]
    rows = await fetch(connection, _TABLES + "WHERE " + _SENT, named, state.all_tables, list(state.schemas))
    return {row["oid"]: _table(row) for row in rows}


def _table(row: DictRow) -> TableState:
    return TableState(
        **{
            **row,
            "generated_columns": tuple(row["generated_columns"]),
            "toastable_columns": tuple(row["toastable_columns"]),
        }
    )


async def list_tables(connection: Connection) -> list[TableState]:
    """Tables that our role owns: no partitions, since their roots stand for them, and none of the system's."""
    rows = await fetch(
        connection,
        _TABLES + "WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition "
        "AND n.nspname <> 'information_schema' AND NOT starts_with(n.nspname, 'pg_') "
        "AND pg_has_role(c.relowner, 'USAGE') ORDER BY 3, 4",
    )
    return [_table(row) for row in rows]
