"""How a request becomes a definition: each field checked against the table's facts. Pure.

All fields are checked, so that whoever asks hears of all mistakes at once. The texts are those that clients of the
protocol know, to the letter.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from shapes.definition import DefinedColumn, Definition, LogMode, Replica, Table, TableColumn
from shapes.errors import DefinitionError, InvalidWhere
from shapes.identifiers import parse_columns
from shapes.where.clause import Clause

Chosen = TypeVar("Chosen", bound=StrEnum)
Errors = dict[str, tuple[str, ...]]

_EXCLUDE: Final = (
    ". You can exclude them from the shape by explicitly listing which columns to fetch in the 'columns' query param"
)


@dataclass(frozen=True, slots=True)
class Request:
    """A shape as it is asked for, beside its table: each field as the text that came, None where nothing did."""

    where: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    """By number: `{"1": ..}`."""
    columns: str | None = None
    replica: str | None = None
    log: str | None = None


def define(request: Request, table: Table, *, publishes_generated: bool = False) -> Definition:
    """The definition of what is asked for; raises `DefinitionError` with every field's faults.

    `publishes_generated`: the publication sends stored generated columns (Postgres 18 can).
    """
    errors: Errors = {}
    replica, log = Replica.DEFAULT, LogMode.FULL
    columns: tuple[TableColumn, ...] = ()
    clause: Clause | None = None
    sent = "s" if publishes_generated else ""
    unsent = {column.name for column in table.columns if column.generated not in {"", sent}}
    with _collecting(errors):
        _check_table(table)
    with _collecting(errors):
        columns = _selected(request.columns, table, unsent)
    with _collecting(errors):
        clause = _clause(request, table, unsent)
    with _collecting(errors):
        replica = _choice("replica", request.replica, Replica.DEFAULT)
    with _collecting(errors):
        log = _choice("log", request.log, LogMode.FULL)
    if errors:
        raise DefinitionError(fields=errors)
    read = set(clause.columns) if clause else set()
    used = [column for column in table.columns if column in columns or column.name in read]
    return Definition(
        oid=table.oid,
        schema=table.schema,
        table=table.name,
        key=table.key,
        columns=tuple(map(_defined, columns)),
        selects_all=request.columns is None,
        where=clause.text if clause else None,
        where_columns=tuple(_defined(column) for column in table.columns if column.name in read),
        replica=replica,
        log=log,
        specs={column.name: column.spec for column in columns if column.spec is not None},
        enums={oid: labels for column in used for oid, labels in column.enums.items()},
    )


@contextmanager
def _collecting(errors: Errors) -> Iterator[None]:
    try:
        yield
    except DefinitionError as error:
        errors |= error.fields


def _check_table(table: Table) -> None:
    if table.kind not in {"r", "p"}:
        text = f"{table} is neither an ordinary nor a partitioned table, and so writes no logical changes"
    elif table.persistence != "p":
        text = f"{table} is unlogged or temporary, and so writes no logical changes"
    elif table.silent:
        text = f"partitions of {table} are unlogged or foreign, and so write no changes: {', '.join(table.silent)}"
    elif not table.columns:
        text = f"{table} has no columns"
    else:
        return
    raise DefinitionError(fields={"table": [text]})


def _selected(text: str | None, table: Table, unsent: Collection[str]) -> tuple[TableColumn, ...]:
    """In the table's order, whatever the request's."""
    names = None if text is None else _named(text, table)
    selected = tuple(column for column in table.columns if names is None or column.name in names)
    if generated := [column.name for column in selected if column.name in unsent]:
        advice = "" if names is not None else _EXCLUDE
        raise _columns_error(
            f"The following columns are generated and cannot be included in the shape: {', '.join(generated)}{advice}"
        )
    return selected


def _named(text: str, table: Table) -> Collection[str]:
    """The columns of a list, in which there must be the key and nothing unknown."""
    names = dict.fromkeys(parse_columns(text))
    known = {column.name for column in table.columns}
    if missing := [name for name in table.key if name not in names]:
        raise _columns_error(f"The list of columns must include all primary key columns, missing: {', '.join(missing)}")
    if unknown := [name for name in names if name not in known]:
        raise _columns_error(f"The following columns are not found on the table: {', '.join(unknown)}")
    return names


def _columns_error(text: str) -> DefinitionError:
    return DefinitionError(fields={"columns": [text]})


def _clause(request: Request, table: Table, unsent: Collection[str]) -> Clause | None:
    if request.where is None or not request.where.strip():
        return None
    numbers = [str(number) for number in range(1, len(request.params) + 1)]
    if set(request.params) != set(numbers):
        raise DefinitionError(fields={"params": ["Parameters must be numbered sequentially, starting from 1"]})
    columns = {column.name: column.for_where for column in table.columns}
    try:
        clause = Clause.of(request.where, columns, {int(number): request.params[number] for number in numbers})
    except InvalidWhere as error:
        raise DefinitionError(fields={"where": [error.message]}) from None
    if generated := [name for name in clause.columns if name in unsent]:
        text = f"The following columns are generated and not sent, so no change can be tested: {', '.join(generated)}"
        raise DefinitionError(fields={"where": [text]})
    return clause


def _choice(name: str, text: str | None, default: Chosen) -> Chosen:
    if text is None or not text.strip():
        return default
    kinds = type(default)
    if text not in [kind.value for kind in kinds]:
        raise DefinitionError(fields={name: ["is invalid"]})
    return kinds(text)


def _defined(column: TableColumn) -> DefinedColumn:
    return DefinedColumn(column.name, column.number, column.type_oid, column.typmod)
