"""Some rows of a shape by themselves, asked of Postgres at the moment of the request: a page, a search, a first view.

The answer says which transactions it has seen, so that a client can put it together with the changes that it follows.

Invariants:
    a subset has no row and no column that its shape lacks, and no error tells of others either
    rows are read within bounds of number, bytes and time, on a bounded number of connections
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pglast
import psycopg
from pglast import ast, enums
from pglast.parser import ParseError

from cdc.source.errors import SourceError
from cdc.source.publication import quote
from shapes.errors import InvalidWhere, ShapeError
from shapes.http.definitions import Defined
from shapes.http.encoding_by_hand import key_of
from shapes.http.limits import SUBSET_BYTES_MAX, SUBSET_ROWS_MAX, SUBSET_SECONDS_MAX, SUBSETS_AT_ONCE
from shapes.http.params import ShapeQuery, Subset
from shapes.http.problems import Problem, invalid_subset, not_yet, unreachable_database
from shapes.http.row_format import RowFormat
from shapes.service import ShapeService
from shapes.snapshot_transaction import Selection, SnapshotTransaction
from shapes.where.clause import Clause
from shapes.where.tree import And, AnyAll, Call, Cast, Collate, Column, Constant, Expr, IsNull, IsTruth, Not, Or, walk
from shapes.where.types import TEXT

_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_ORDER_PREFIX = "SELECT 1 ORDER BY "
_FETCH_ROWS = 1_000
_DIRECTIONS = {
    enums.SortByDir.SORTBY_DEFAULT: "",
    enums.SortByDir.SORTBY_ASC: " ASC",
    enums.SortByDir.SORTBY_DESC: " DESC",
}
_NULLS = {
    enums.SortByNulls.SORTBY_NULLS_DEFAULT: "",
    enums.SortByNulls.SORTBY_NULLS_FIRST: " NULLS FIRST",
    enums.SortByNulls.SORTBY_NULLS_LAST: " NULLS LAST",
}
_MARK_MAX = 2**31 - 1


class Subsets:
    """Asks for subsets."""

    def __init__(self, service: ShapeService) -> None:
        self._house = service.house
        self._places = asyncio.Semaphore(SUBSETS_AT_ONCE)

    async def answer(self, query: ShapeQuery, defined: Defined) -> bytes:
        """The body of the answer."""
        subset, definition = query.subset, defined.definition
        assert subset is not None, "it was asked for"
        statement = subset_sql(subset, defined)
        selection = Selection(
            definition.oid,
            definition.schema,
            definition.table,
            defined.form.columns,
            is_partitioned=defined.table.kind == "p",
        )
        sql = f"SELECT {', '.join(map(quote, defined.form.columns))} FROM {selection.name}{statement}"  # noqa: S608 - names are quoted, clauses canonical
        try:
            async with self._places, asyncio.timeout(SUBSET_SECONDS_MAX), self._opened(selection) as transaction:
                rows = await self._rows(transaction, sql, defined.form)
        except TimeoutError:
            raise not_yet("The subset took too long, please retry with a smaller one", 10) from None
        except (ShapeError, SourceError) as error:
            raise _unreachable(error) from None
        except psycopg.Error as error:
            raise _refused(error) from None
        snapshot = transaction.snapshot
        mark = random.randint(0, _MARK_MAX)  # noqa: S311 - it tells subsets apart, and keeps no secret
        metadata = {
            "xmin": str(snapshot.xmin),
            "xmax": str(snapshot.xmax),
            "xip_list": [str(xid) for xid in snapshot.xip],
            "snapshot_mark": mark,
            "database_lsn": str(snapshot.birth),
        }
        return await asyncio.to_thread(_body, metadata, rows, defined.form, mark)

    @asynccontextmanager
    async def _opened(self, selection: Selection) -> AsyncIterator[SnapshotTransaction]:
        transaction = await SnapshotTransaction.open(self._house.conninfo, self._house.application, selection)
        try:
            milliseconds = f"{SUBSET_SECONDS_MAX * 1000:.0f}"
            await transaction.connection.execute("SELECT set_config('statement_timeout', %s, true)", [milliseconds])
            yield transaction
        finally:
            await transaction.close()

    async def _rows(self, transaction: SnapshotTransaction, sql: str, form: RowFormat) -> list[dict[str, str | None]]:
        """All rows as text, some at a time."""
        connection = transaction.connection
        await connection.execute(f"DECLARE subset NO SCROLL CURSOR FOR {sql}".encode())
        rows: list[dict[str, str | None]] = []
        size = 0
        while True:
            cursor = await connection.execute(f"FETCH {_FETCH_ROWS} FROM subset".encode())
            result = cursor.pgresult
            assert result is not None, "it was fetched"
            for row in range(result.ntuples):
                values = [result.get_value(row, column) for column in range(result.nfields)]
                size += sum(len(value) for value in values if value is not None)
                texts = [None if value is None else value.decode() for value in values]
                rows.append(dict(zip(form.columns, texts, strict=True)))
            if len(rows) > SUBSET_ROWS_MAX or size > SUBSET_BYTES_MAX:
                text = f"the subset has more than {SUBSET_ROWS_MAX} rows, or {SUBSET_BYTES_MAX} bytes: ask for less"
                raise invalid_subset({"limit": [text]})
            if result.ntuples < _FETCH_ROWS:
                return rows


def subset_sql(subset: Subset, defined: Defined) -> str:
    """What follows FROM; a `Problem` for clauses that are none. Pure."""
    columns = {column.name: column.for_where for column in defined.queryable}
    shape = defined.definition.where
    conditions = [] if shape is None else [shape]
    if subset.where is not None:
        clause = _where(subset, columns)
        if shape is None or _fails_for_no_row(clause.tree):
            conditions.append(clause.text)
        else:
            conditions.append(f"CASE WHEN {shape} THEN {clause.text} ELSE false END")
    sql = f" WHERE {' AND '.join(f'({one})' for one in conditions)}" if conditions else ""
    if subset.order_by is not None:
        sql += f" ORDER BY {order_sql(subset.order_by, columns)}"
    sql += f" LIMIT {min(subset.limit or SUBSET_ROWS_MAX + 1, SUBSET_ROWS_MAX + 1)}"
    return sql + (f" OFFSET {subset.offset}" if subset.offset else "")


def _fails_for_no_row(tree: Expr) -> bool:
    """Whether a clause compares columns with values, and does nothing else.

    Of two conditions Postgres tries the cheaper one first. A cast or a division could so meet rows that the shape
    lacks, and its error would tell of them: such a clause waits for the shape's, at the price of its own indexes.
    """
    return all(_is_plain(node) for node in walk(tree))


def _is_plain(node: Expr) -> bool:
    match node:
        case Call():
            return node.name in _COMPARISONS and len(node.args) == 2
        case AnyAll():
            return node.operator in _COMPARISONS
        case Cast():
            return node.type == TEXT and node.typmod < 0  # everything has a text
        case _:
            return isinstance(node, Column | Constant | And | Or | Not | IsNull | IsTruth | Collate)


def _where(subset: Subset, columns: dict[str, Any]) -> Clause:
    numbers = [str(number) for number in range(1, len(subset.params) + 1)]
    if set(subset.params) != set(numbers):
        raise invalid_subset({"params": ["Parameters must be numbered sequentially, starting from 1"]})
    try:
        params = {int(number): subset.params[number] for number in numbers}
        return Clause.of(subset.where or "", columns, params)
    except InvalidWhere as error:
        raise invalid_subset({"where": [error.message]}) from None


def order_sql(text: str, columns: dict[str, Any]) -> str:
    """An ORDER BY of columns, each as it is, written anew; a `Problem` for all else."""
    try:
        statements = pglast.parse_sql(_ORDER_PREFIX + text)
    except ParseError as error:
        raise _order_problem(str(error.args[0])) from None
    except RecursionError:
        raise _order_problem("it is nested too deeply") from None
    statement = statements[0].stmt
    if len(statements) != 1 or not isinstance(statement, ast.SelectStmt) or _has_more(statement):
        raise _order_problem("only a list of columns is allowed")
    return ", ".join(_sorted_by(item, columns) for item in statement.sortClause or ())


def _sorted_by(item: Any, columns: dict[str, Any]) -> str:  # noqa: ANN401 - the parser's nodes have no types
    names: Sequence[Any] = (item.node.fields or ()) if isinstance(item.node, ast.ColumnRef) else ()
    if item.useOp or len(names) != 1 or not isinstance(names[0], ast.String):
        raise _order_problem("expressions are not allowed in ORDER BY clauses")
    name = names[0].sval
    if name not in columns:
        raise _order_problem(f"unknown reference {name}")
    return quote(name) + _DIRECTIONS[item.sortby_dir] + _NULLS[item.sortby_nulls]


def _has_more(statement: ast.SelectStmt) -> bool:
    parts = ("fromClause", "whereClause", "groupClause", "limitCount", "limitOffset", "lockingClause", "larg")
    return not statement.sortClause or any(getattr(statement, part) for part in parts)


def _order_problem(text: str) -> Problem:
    return invalid_subset({"order_by": [text]})


def _body(metadata: dict[str, Any], rows: list[dict[str, str | None]], form: RowFormat, mark: int) -> bytes:
    headers = {"operation": "insert", "relation": [form.schema, form.table], "snapshot_mark": mark}
    data = [{"key": key_of(form, row), "value": row, "headers": headers} for row in rows]
    return orjson.dumps({"metadata": metadata, "data": data})


def _unreachable(error: ShapeError | SourceError) -> Problem:
    if isinstance(error, ShapeError):  # the table is locked, or is not what it was
        return not_yet("The subset cannot be read at the moment, please retry", 10, code=error.code)
    return unreachable_database()


def _refused(error: psycopg.Error) -> Problem:
    """A value that is none of its type is the request's fault; all else is not."""
    state = error.sqlstate or ""
    if state[:2] in {"22", "42"}:
        return invalid_subset({"where": [error.diag.message_primary or "is invalid"]})
    return unreachable_database() if not state else not_yet("The subset cannot be read at the moment, please retry", 10)
