"""The text of a where clause as Postgres' own parser sees it: exactly one expression, or an error with its place.

Places are characters of the clause, from 0. The grammar is that of the newest Postgres that the parser knows.
"""

import json
from typing import Any, TypeAlias

import pglast
from pglast import ast
from pglast.parser import ParseError, parse_sql_json

from shapes.errors import WHERE_PREFIX, InvalidWhere

SyntaxNode: TypeAlias = Any
"""A node of the parser, whose own types call everything optional; what a kind of node has, the grammar says."""


def parse_clause(clause: str, bytes_max: int) -> SyntaxNode:
    """The expression that the clause is; `InvalidWhere` for anything else."""
    if not is_sendable(clause):
        raise InvalidWhere("the where clause is not Unicode text, or has a NUL character")
    size = len(clause.encode())
    if size > bytes_max:
        raise InvalidWhere(f"the where clause is bigger than maximum size: {size} bytes, at most {bytes_max}")
    statement = _only_statement(clause)
    if statement.whereClause is None:
        raise InvalidWhere("syntax error at end of input", position=len(clause))
    _has_nothing_else(statement)
    return statement.whereClause


def is_sendable(text: str) -> bool:
    """Whether Postgres can have such a text at all."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def position_of(node: SyntaxNode) -> int:
    """Where the node is written, in the clause."""
    location = getattr(node, "location", None)
    if location is None or location < 0:
        return 0
    return max(int(location) - len(WHERE_PREFIX), 0)


def position_of_text(clause: str, text: str) -> int:
    """Where the quoted constant stands (the first of several): the parser's nodes do not say."""
    whole = WHERE_PREFIX + clause
    pending: list[Any] = [json.loads(parse_sql_json(whole))]
    found = []
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            constant = node.get("A_Const", {})
            if constant.get("sval", {}).get("sval", "") == text and "sval" in constant:
                found.append(len(whole.encode()[: constant.get("location", 0)].decode(errors="ignore")))
        pending += node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return max(min(found, default=0) - len(WHERE_PREFIX), 0)


def _only_statement(clause: str) -> ast.SelectStmt:
    text = WHERE_PREFIX + clause
    try:
        statements = pglast.parse_sql(text)
    except ParseError as error:
        reason, location = error.args[0], error.args[1] if len(error.args) > 1 else None
        # The parser takes its count of characters for one of bytes: undo that where there are others than ASCII.
        location = len(text) if location is None else len(text[:location].encode())
        raise InvalidWhere(reason, position=max(location - len(WHERE_PREFIX), 0)) from None
    if len(statements) != 1:
        semicolon = statements[1].stmt_location if len(statements) > 1 else len(text)
        raise InvalidWhere(
            "a where clause is one expression, and this is more than one statement",
            position=max(int(semicolon or 0) - 1 - len(WHERE_PREFIX), 0),
        )
    statement = statements[0].stmt
    if not isinstance(statement, ast.SelectStmt) or statement.op != 0 or statement.larg is not None:
        raise InvalidWhere("a where clause is one expression, not UNION, INTERSECT or EXCEPT")
    return statement


# What a SELECT may have after its WHERE.
_CLAUSES = {
    "groupClause": "GROUP BY",
    "havingClause": "HAVING",
    "windowClause": "WINDOW",
    "sortClause": "ORDER BY",
    "limitOffset": "OFFSET",
    "limitCount": "LIMIT",
    "lockingClause": "FOR UPDATE",
    "intoClause": "INTO",
    "fromClause": "FROM",
    "withClause": "WITH",
    "distinctClause": "DISTINCT",
    "valuesLists": "VALUES",
}


def _has_nothing_else(statement: ast.SelectStmt) -> None:
    for attribute, words in _CLAUSES.items():
        if getattr(statement, attribute):
            raise InvalidWhere(f"a where clause is one expression, and {words} is not part of it")
