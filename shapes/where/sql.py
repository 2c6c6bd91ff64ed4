"""A typed clause as SQL that means the same on every server: the canonical text.

Every operator, function and type is named with its schema, every constant has its type, every part is in parentheses:
neither the search path nor a setting changes what it says, and it cannot end before its end. Two clauses have the same
text exactly if their trees are equal.
"""

from collections.abc import Callable
from typing import Final

from shapes.errors import InvalidWhere
from shapes.limits import WHERE_TEXT_BYTES_MAX
from shapes.where.tree import (
    And,
    AnyAll,
    Call,
    Cast,
    Coalesce,
    Collate,
    Column,
    Constant,
    Expr,
    Extreme,
    IsNull,
    IsTruth,
    MakeArray,
    Not,
    Or,
    Slice,
    Subscript,
)  # fmt: skip
from shapes.where.types import Type
from shapes.where.values.io import writer


def write_sql(node: Expr) -> str:
    """The text of an expression; `InvalidWhere` where it grows too long."""
    text = _WRITERS[type(node)](node)
    # Checked at every node: shorthands such as BETWEEN repeat their argument, and nested ones multiply it.
    if len(text.encode()) > WHERE_TEXT_BYTES_MAX:
        raise InvalidWhere(
            f"the where clause is bigger than maximum size: written out it has more than {WHERE_TEXT_BYTES_MAX} bytes"
        )
    return text


def quoted_name(name: str) -> str:
    """A name of anything."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A text as a constant, whatever `standard_conforming_strings` is."""
    doubled = text.replace("'", "''")
    return "E'" + doubled.replace("\\", "\\\\") + "'" if "\\" in text else f"'{doubled}'"


def _type(kind: Type, typmod: int = -1) -> str:
    leaf, brackets = (kind, "") if kind.element is None else (kind.element, "[]")
    return f"pg_catalog.{quoted_name(leaf.name)}{_modifiers(leaf, typmod)}{brackets}"


def _modifiers(kind: Type, typmod: int) -> str:
    if typmod < 0:
        return ""
    if kind.name == "numeric":
        return f"({(typmod - 4) >> 16 & 0xFFFF},{((typmod - 4 & 0x7FF) ^ 1024) - 1024})"
    return f"({typmod - 4})" if kind.name in ("varchar", "bpchar") else f"({typmod})"


def _list(nodes: tuple[Expr, ...], separator: str) -> str:
    return separator.join(map(write_sql, nodes))


def _operator(name: str) -> str:
    return f"OPERATOR(pg_catalog.{name})"


def _constant(node: Constant) -> str:
    value = "NULL" if node.value is None else quoted_text(writer(node.type)(node.value))
    return f"{value}::{_type(node.type)}"


def _call(node: Call) -> str:
    if node.name[0].isalpha():
        return f"pg_catalog.{node.name}({_list(node.args, ', ')})"
    if len(node.args) == 1:
        return f"({_operator(node.name)} {write_sql(node.args[0])})"
    return f"({write_sql(node.args[0])} {_operator(node.name)} {write_sql(node.args[1])})"


def _any_all(node: AnyAll) -> str:
    which = "ALL" if node.all_ else "ANY"
    return f"({write_sql(node.left)} {_operator(node.operator)} {which} ({write_sql(node.array)}))"


def _subscript(node: Subscript) -> str:
    return f"({write_sql(node.array)})" + "".join(f"[{write_sql(index)}]" for index in node.indices)


def _slice(node: Slice) -> str:
    def bound(end: Expr | None) -> str:
        return "" if end is None else write_sql(end)

    return f"({write_sql(node.array)})" + "".join(f"[{bound(low)} : {bound(high)}]" for low, high in node.bounds)


def _cast(node: Cast) -> str:
    return f"({write_sql(node.arg)})::{_type(node.type, node.typmod)}"


def _truth(node: IsTruth) -> str:
    return f"({write_sql(node.arg)} IS {'TRUE' if node.truth else 'FALSE'})"


def _extreme(node: Extreme) -> str:
    return f"{'GREATEST' if node.greatest else 'LEAST'}({_list(node.args, ', ')})"


_WRITERS: Final[dict[type, Callable[..., str]]] = {
    Column: lambda node: quoted_name(node.name),
    Constant: _constant,
    Call: _call,
    Cast: _cast,
    And: lambda node: f"({_list(node.args, ' AND ')})",
    Or: lambda node: f"({_list(node.args, ' OR ')})",
    Not: lambda node: f"(NOT {write_sql(node.arg)})",
    IsNull: lambda node: f"({write_sql(node.arg)} IS NULL)",
    IsTruth: _truth,
    AnyAll: _any_all,
    Coalesce: lambda node: f"COALESCE({_list(node.args, ', ')})",
    Extreme: _extreme,
    # With its type, or a cast behind it would be read as one of its elements.
    MakeArray: lambda node: f"(ARRAY[{_list(node.args, ', ')}]::{_type(node.type)})",
    Subscript: _subscript,
    Slice: _slice,
    Collate: lambda node: f'({write_sql(node.arg)} COLLATE pg_catalog."C")',
}
