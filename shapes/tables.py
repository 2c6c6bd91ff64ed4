"""The facts of tables, read from the server's catalog: one statement for many tables, and so of one moment.

Nothing is kept here. A table that is not there has no facts; where somebody asked for it by name, that is the
protocol's error for the field `table`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, LiteralString

from psycopg.rows import DictRow

from cdc.source.connections import Connection, fetch
from shapes.definition import Table, TableColumn
from shapes.errors import DefinitionError
from shapes.identifiers import parse_table_name
from shapes.type_specs import Facts, enums_below, type_spec
from shapes.where.types import Collation

# The innermost type of each domain, and the modifier that this one's definition gave it.
_DOMAINS: Final[LiteralString] = """
    WITH RECURSIVE below AS (
        SELECT t.oid AS domain, t.typbasetype AS base, t.typtypmod AS typmod FROM pg_type t WHERE t.typtype = 'd'
        UNION ALL
        SELECT b.domain, t.typbasetype, t.typtypmod FROM below b JOIN pg_type t ON t.oid = b.base AND t.typtype = 'd'
    ), domains AS (
        SELECT b.domain, b.base, b.typmod FROM below b JOIN pg_type t ON t.oid = b.base AND t.typtype <> 'd'
    )
"""

# Rows of the catalogs of collations as JSON, since each version of Postgres has other columns.
_COLUMNS: Final[LiteralString] = """
    SELECT jsonb_agg(jsonb_build_object(
        'name', a.attname, 'number', a.attnum, 'type_oid', a.atttypid::bigint, 'type_name', t.typname,
        'typmod', a.atttypmod, 'dims', CASE WHEN e.oid IS NULL THEN 0 ELSE greatest(a.attndims, 1) END,
        'element_name', e.typname, 'base_oid', coalesce(d.base::bigint, 0), 'base_typmod', coalesce(d.typmod, -1),
        'labels', (SELECT jsonb_agg(l.enumlabel ORDER BY l.enumsortorder) FROM pg_enum l
                   WHERE l.enumtypid = coalesce(d.base, a.atttypid)),
        'collation', (SELECT to_jsonb(o) FROM pg_collation o WHERE o.oid = a.attcollation),
        'not_null', a.attnotnull, 'generated', a.attgenerated,
        'pk_index', (SELECT k.place - 1 FROM unnest(i.indkey) WITH ORDINALITY k(number, place)
                     WHERE k.number = a.attnum AND k.place <= i.indnkeyatts)
    ) ORDER BY a.attnum)
    FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
    LEFT JOIN domains d ON d.domain = t.oid
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indimmediate
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
"""

# Types of columns that are made of others, and those that they are made of, however deep.
_TYPES: Final[LiteralString] = """
    WITH RECURSIVE reached (oid) AS (
        SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        UNION
        SELECT n.oid FROM reached r JOIN pg_type t ON t.oid = r.oid CROSS JOIN LATERAL (
            SELECT t.typbasetype WHERE t.typtype = 'd'
            UNION ALL SELECT t.typelem WHERE t.typtype = 'b' AND t.typelem <> 0 AND t.typarray = 0
            UNION ALL SELECT g.rngsubtype FROM pg_range g WHERE g.rngtypid = t.oid AND t.typtype = 'r'
            UNION ALL SELECT f.atttypid FROM pg_attribute f
                      WHERE t.typtype = 'c' AND f.attrelid = t.typrelid AND f.attnum > 0 AND NOT f.attisdropped
        ) n (oid))
    SELECT jsonb_object_agg(t.oid::bigint, jsonb_build_object(
        'kind', t.typtype, 'base', t.typbasetype::bigint, 'typmod', t.typtypmod, 'element', t.typelem::bigint,
        'delimiter', t.typdelim,
        'bounds', (SELECT g.rngsubtype::bigint FROM pg_range g WHERE g.rngtypid = t.oid),
        'labels', (SELECT jsonb_agg(l.enumlabel ORDER BY l.enumsortorder) FROM pg_enum l WHERE l.enumtypid = t.oid),
        'fields', (SELECT jsonb_agg(jsonb_build_array(f.attname, f.atttypid::bigint, f.atttypmod) ORDER BY f.attnum)
                   FROM pg_attribute f WHERE f.attrelid = t.typrelid AND f.attnum > 0 AND NOT f.attisdropped)))
    FROM reached JOIN pg_type t ON t.oid = reached.oid
    WHERE t.typtype IN ('d', 'e', 'r', 'c') OR (t.typtype = 'b' AND t.typelem <> 0 AND t.typarray = 0)
"""

_FACTS: Final[LiteralString] = """
    SELECT c.oid::bigint AS oid, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind,
           c.relpersistence::text AS persistence, c.relreplident::text AS replica_identity,
           coalesce(pg_partition_root(c.oid)::oid, c.oid)::bigint AS root,
           CASE WHEN c.relkind = 'p' THEN (
               -- pg_partition_tree would ask for every leaf's lock, and wait for whoever has one for himself.
               WITH RECURSIVE tree (at) AS (
                   SELECT c.oid
                   UNION ALL
                   SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.at
                   JOIN pg_class p ON p.oid = tree.at
                   WHERE p.relkind = 'p' AND (to_jsonb(i) ->> 'inhdetachpending') IS DISTINCT FROM 'true')
               SELECT jsonb_agg(jsonb_build_object('oid', l.oid::bigint, 'silent', CASE
                          WHEN l.relkind = 'r' AND l.relpersistence = 'p' THEN NULL
                          ELSE format('%%I.%%I', s.nspname, l.relname) END) ORDER BY l.oid)
               FROM tree JOIN pg_class l ON l.oid = tree.at JOIN pg_namespace s ON s.oid = l.relnamespace
               WHERE l.relkind <> 'p'
           ) END AS leaves,
           (SELECT to_jsonb(b) FROM pg_database b WHERE b.datname = current_database()) AS database,
"""

_TABLES: Final[LiteralString] = (
    _DOMAINS
    + _FACTS
    + f"({_COLUMNS}) AS columns, ({_TYPES}) AS types FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
)

_BY_NAME: Final[LiteralString] = """
    WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
      AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""


async def read_tables(connection: Connection, oids: Iterable[int]) -> dict[int, Table]:
    """Tables by their oids; those that are gone are left out."""
    rows = await fetch(connection, _TABLES + "WHERE c.oid = ANY (%s::oid[])", list(oids))
    return {row["oid"]: _table(row) for row in rows}


async def find_tables(connection: Connection, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Table]:
    """Tables by schema and name; those that are not there are left out."""
    wanted = list(names)
    schemas, tables = [schema for schema, _ in wanted], [name for _, name in wanted]
    rows = await fetch(connection, _TABLES + _BY_NAME, schemas, tables)
    return {(row["schema"], row["name"]): _table(row) for row in rows}


async def find_table(connection: Connection, text: str) -> Table:
    """The table that a request names; raises `DefinitionError` if the text names none."""
    name = parse_table_name(text)
    found = (await find_tables(connection, [name])).get(name)
    if found is None:
        text = (
            f'Table "{name[0]}"."{name[1]}" does not exist. '
            "If the table name contains capitals or special characters you must quote it."
        )
        raise DefinitionError(fields={"table": [text]})
    return found


def _table(row: DictRow) -> Table:
    database = row["database"]
    columns = tuple(_column(facts, database, row["types"] or {}) for facts in row["columns"] or ())
    facts = {name: row[name] for name in ("oid", "schema", "name", "kind", "persistence", "replica_identity", "root")}
    leaves = row["leaves"] or ()
    return Table(
        **facts,
        columns=columns,
        leaves=tuple(leaf["oid"] for leaf in leaves),
        silent=tuple(leaf["silent"] for leaf in leaves if leaf["silent"] is not None),
    )


def _column(facts: Mapping[str, Any], database: Mapping[str, Any], types: Facts) -> TableColumn:
    labels, collation = facts["labels"], facts["collation"]
    return TableColumn(
        **{
            **facts,
            "labels": None if labels is None else tuple(labels),
            "spec": type_spec(facts["type_oid"], facts["typmod"], types),
            "enums": enums_below(facts["type_oid"], types),
            "collation": Collation.LANGUAGE if collation is None else _collation(collation, database),
        }
    )


def _collation(facts: Mapping[str, Any], database: Mapping[str, Any]) -> Collation:
    """What is known of a collation; `default`, whose provider is `d`, is the database's."""
    if not facts.get("collisdeterministic", True):
        return Collation.LOOSE
    of, prefix = (database, "dat") if facts["collprovider"] == "d" else (facts, "coll")
    provider = of.get("datlocprovider", "c") if of is database else of["collprovider"]
    if provider == "c":
        order, case = of[f"{prefix}collate"], of[f"{prefix}ctype"]
    elif provider == "b":
        order = case = of[f"{prefix}locale"]
    else:
        return Collation.LANGUAGE  # ICU
    if _is_plain(order):
        return Collation.C if _is_plain(case) else Collation.BYTES
    return Collation.BYTES if order.upper() in _BY_CODE_POINT else Collation.LANGUAGE


_BY_CODE_POINT: Final = frozenset({"C.UTF-8", "C.UTF8", "PG_UNICODE_FAST"})
"""Locales whose order is that of code points, which is that of their bytes in UTF-8."""


def _is_plain(locale: str) -> bool:
    return locale in {"C", "POSIX"}
