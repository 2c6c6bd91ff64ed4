"""From the parser's nodes to a typed tree: which columns, which types, which of SQL's forms.

One method for each kind of node of the parser; what is not listed here is not supported, and says so.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pglast import ast, enums

from shapes.errors import InvalidWhere
from shapes.where import build, operators, polymorphic
from shapes.where.build import Builder, Operand, Unknown, refused
from shapes.where.coercion import common_type
from shapes.where.parse import SyntaxNode, position_of
from shapes.where.rows import compare_rows
from shapes.where.tree import Collate, Column, Constant, Expr, Slice, Subscript
from shapes.where.typenames import type_of_name
from shapes.where.types import (
    BOOL,
    BY_NAME,
    INT4,
    INT8,
    INTERVAL,
    NUMERIC,
    TEXT,
    UNKNOWN,
    ColumnType,
    Type,
    type_of_column,
)  # fmt: skip
from shapes.where.values.intervals import FIELDS
from shapes.where.values.numbers import RANGES, read_numeric
from shapes.where.values.value import Invalid

_FUNCTIONS: Final = operators.FUNCTION_NAMES | polymorphic.FUNCTION_NAMES
_AS_OPERATORS: Final = {"like": "~~", "ilike": "~~*", "notlike": "!~~"}
_KIND: Final = enums.A_Expr_Kind
_UNSUPPORTED: Final[dict[type, str]] = {
    ast.SubLink: "subqueries are not supported",
    ast.SQLValueFunction: "the current time, date or user is not supported: it is not the same at every moment",
    ast.CaseExpr: "CASE is not supported",
    ast.SetToDefault: "DEFAULT is not allowed in this context",
    ast.RowExpr: "a row is only supported in comparisons with another row, in IN and in IS NULL",
    ast.JsonFuncExpr: "JSON functions are not supported",
}
_CHANGING: Final = frozenset(
    ("now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday", "random", "age", "nextval")
)
_AGGREGATES: Final = frozenset(
    ("count", "sum", "avg", "min", "max", "array_agg", "string_agg", "bool_and", "bool_or", "every", "json_agg")
)


def check(
    clause: SyntaxNode,
    columns: Mapping[str, ColumnType],
    parameters: Mapping[int, str | None],
    locate: Callable[[str], int],
    depth: int,
) -> Expr:
    """The typed tree of a clause, at most so deep. `locate` finds a quoted constant in the text."""
    checker = _Checker(columns, Builder(parameters, locate), depth)
    operand = checker.operand(clause)
    if operand.type not in (BOOL, UNKNOWN):
        raise InvalidWhere("WHERE clause must return a boolean")
    return checker.builder.coerce(operand, BOOL, position_of(clause))


class _Checker:
    def __init__(self, columns: Mapping[str, ColumnType], builder: Builder, depth: int) -> None:
        self._columns = columns
        self._levels_left = depth
        self.builder = builder

    def operand(self, node: SyntaxNode) -> Operand:
        """The typed node, or a constant without a type yet."""
        handle = _HANDLERS.get(type(node))
        if handle is None:
            what = _UNSUPPORTED.get(type(node), f"{type(node).__name__} is not supported in a where clause")
            raise refused(what, position_of(node))
        if self._levels_left == 0:
            raise refused("the where clause is nested too deeply", position_of(node))
        self._levels_left -= 1
        found = handle(self, node)
        self._levels_left += 1
        return found

    def operands(self, nodes: Sequence[SyntaxNode] | None) -> list[Operand]:
        return [self.operand(node) for node in nodes or ()]

    def constant(self, node: SyntaxNode) -> Operand:
        position, value = position_of(node), node.val
        if node.isnull:
            return Unknown(None, None)
        match value:
            case ast.Boolean():
                return Constant(bool(value.boolval), BOOL)
            case ast.Integer():
                return Constant(int(value.ival or 0), INT4)
            case ast.String():
                return Unknown(value.sval or "", None)
            case ast.Float():
                return _number(value.fval or "", position)
            case _:
                raise refused("bit strings are not supported", position)

    def column(self, node: SyntaxNode) -> Operand:
        names = [getattr(field, "sval", "*") for field in node.fields]
        if len(names) != 1 or names[0] not in self._columns:
            known = ", ".join(self._columns)
            raise refused(
                f"unknown reference {'.'.join(names)}", position_of(node), f"The columns of the table are: {known}."
            )
        described = self._columns[names[0]]
        return Column(names[0], type_of_column(described), described.collation)

    def parameter(self, node: SyntaxNode) -> Operand:
        return self.builder.parameter(int(node.number or 0), position_of(node))

    def cast(self, node: SyntaxNode) -> Operand:
        position = position_of(node) or position_of(node.arg)
        kind, typmod = type_of_name(node.typeName, position)
        if isinstance(node.arg, ast.A_ArrayExpr) and kind.element is not None:
            return self._array_of_type(node.arg, kind, typmod)
        arg = self.operand(node.arg)
        if kind == INTERVAL and typmod >= 0 and not (isinstance(arg, Unknown) and typmod in FIELDS):
            raise refused("modifiers of interval are only supported as in INTERVAL '1' DAY", position)
        return self.builder.cast(arg, kind, typmod, position)

    def _array_of_type(self, node: SyntaxNode, kind: Type, typmod: int) -> Expr:
        """`ARRAY[..]::type[]`: the type reaches the elements, which also lets the array be empty."""
        position = position_of(node)
        assert kind.element is not None
        args: list[Operand] = []
        for element in node.elements or ():
            if isinstance(element, ast.A_ArrayExpr):
                args.append(self._array_of_type(element, kind, typmod))
            else:
                operand = self.operand(element)
                target = kind if operand.type.element is not None else kind.element
                args.append(self.builder.cast(operand, target, typmod, position))
        return (
            self.builder.array(args, position)
            if args
            else self.builder.cast(Unknown("{}", position), kind, -1, position)
        )

    def array(self, node: SyntaxNode) -> Operand:
        if not node.elements:
            raise refused(
                "cannot determine type of empty array", position_of(node), "Write ARRAY[]::integer[], for example."
            )
        return self.builder.array(self.operands(node.elements), position_of(node))

    def logic(self, node: SyntaxNode) -> Operand:
        word = {enums.BoolExprType.AND_EXPR: "AND", enums.BoolExprType.OR_EXPR: "OR"}.get(node.boolop, "NOT")
        args = [self.builder.boolean(self.operand(arg), word, position_of(arg)) for arg in node.args]
        if word == "NOT":
            return build.negation(args[0], position_of(node))
        return build.conjunction(args) if word == "AND" else build.disjunction(args)

    def null_test(self, node: SyntaxNode) -> Operand:
        position = position_of(node.arg)
        is_not = node.nulltesttype == enums.NullTestType.IS_NOT_NULL
        nodes = node.arg.args if isinstance(node.arg, ast.RowExpr) else [node.arg]
        tests = []
        for operand in self.operands(nodes):
            test = build.is_null(self._settled(operand), position)
            tests.append(build.negation(test, position) if is_not else test)
        return build.conjunction(tests)

    def truth_test(self, node: SyntaxNode) -> Operand:
        position, kind = position_of(node.arg), enums.BoolTestType(node.booltesttype).name
        arg = self.builder.boolean(self.operand(node.arg), kind.replace("_", " "), position)
        if kind.endswith("UNKNOWN"):
            test = build.is_null(arg, position)
        else:
            test = build.is_truth(arg, kind.endswith("TRUE"), position)
        return build.negation(test, position) if "_NOT_" in kind else test

    def _settled(self, operand: Operand) -> Expr:
        return self.builder.coerce(operand, TEXT, 0) if isinstance(operand, Unknown) else operand

    def expression(self, node: SyntaxNode) -> Operand:
        position, kind = position_of(node), node.kind
        if kind in _BETWEEN:
            return self._between(node)
        if kind == _KIND.AEXPR_IN:
            return self._in(node)
        name = _operator_name(node.name, position)
        if kind in (_KIND.AEXPR_DISTINCT, _KIND.AEXPR_NOT_DISTINCT):
            word = "IS DISTINCT FROM" if kind == _KIND.AEXPR_DISTINCT else "IS NOT DISTINCT FROM"
            return self._compare(word, node.lexpr, node.rexpr, position)
        if kind in (_KIND.AEXPR_OP_ANY, _KIND.AEXPR_OP_ALL):
            left, array = self.operand(node.lexpr), self.operand(node.rexpr)
            return self.builder.any_all(name, left, array, all_=kind == _KIND.AEXPR_OP_ALL, position=position)
        if kind not in (_KIND.AEXPR_OP, _KIND.AEXPR_LIKE, _KIND.AEXPR_ILIKE):
            raise refused(f"{_KIND(kind).name.removeprefix('AEXPR_')} is not supported", position)
        if node.lexpr is None:
            return self.builder.operator(name, [self.operand(node.rexpr)], position)
        return self._compare(name, node.lexpr, node.rexpr, position)

    def _compare(self, name: str, left: SyntaxNode, right: SyntaxNode, position: int) -> Expr:
        """Any operator with two sides; either both are rows, or neither is."""
        return compare_rows(self.builder, name, self._row(left), self._row(right), position)

    def _row(self, node: SyntaxNode) -> Operand | list[Operand]:
        return self.operands(node.args) if isinstance(node, ast.RowExpr) else self.operand(node)

    def _between(self, node: SyntaxNode) -> Expr:
        position, is_not = position_of(node), node.kind in _NOT_BETWEEN
        value, low, high = self.operand(node.lexpr), *self.operands(node.rexpr)

        def within(first: Operand, last: Operand) -> Expr:
            sides = [
                self.builder.operator("<" if is_not else ">=", [value, first], position),
                self.builder.operator(">" if is_not else "<=", [value, last], position),
            ]
            return build.disjunction(sides) if is_not else build.conjunction(sides)

        if node.kind in (_KIND.AEXPR_BETWEEN, _KIND.AEXPR_NOT_BETWEEN):
            return within(low, high)
        both = [within(low, high), within(high, low)]
        return build.conjunction(both) if is_not else build.disjunction(both)

    def _in(self, node: SyntaxNode) -> Expr:
        """Constants as one array, where they have a common type; the rest one by one."""
        position, is_not = position_of(node), node.name[0].sval == "<>"
        name, join = ("<>", build.conjunction) if is_not else ("=", build.disjunction)
        left, values = self._row(node.lexpr), [self._row(value) for value in node.rexpr]
        tests: list[Expr] = []
        if not isinstance(left, list):
            if left.type.category == "E":
                left = self.builder.label(left, values, position)
            constants = [value for value in values if isinstance(value, Constant | Unknown)]
            kind = common_type([left.type, *(value.type for value in constants)])
            if len(constants) > 1 and kind is not None and kind.element is None and kind.category not in "?E":
                items = [self.builder.coerce(value, kind, position) for value in constants]
                array = self.builder.array(items, position)
                tests.append(self.builder.any_all(name, left, array, all_=is_not, position=position))
                values = [value for value in values if not isinstance(value, Constant | Unknown)]
        tests += [compare_rows(self.builder, name, left, value, position) for value in values]
        return join(tests)

    def function(self, node: SyntaxNode) -> Operand:
        position, name = position_of(node), _function_name(node)
        operands = self.operands(node.args)
        if name in _AS_OPERATORS and len(operands) == 2:
            return self.builder.operator(_AS_OPERATORS[name], operands, position)
        if name in _FUNCTIONS:
            return self.builder.function(name, operands, position)
        if name in BY_NAME and len(operands) == 1:
            return self.builder.cast(operands[0], BY_NAME[name], -1, position)
        reason = f"unknown or unsupported function {name}/{len(operands)}"
        if name in _AGGREGATES:
            reason = f"aggregate functions are not allowed in WHERE: {name}"
        elif name in _CHANGING:
            reason += ": its result is not the same at every moment"
        raise refused(reason, position, f"Known are: {', '.join(sorted(_FUNCTIONS))}.")

    def coalesce(self, node: SyntaxNode) -> Operand:
        return self.builder.coalesce(self.operands(node.args), position_of(node))

    def extreme(self, node: SyntaxNode) -> Operand:
        greatest = node.op == enums.MinMaxOp.IS_GREATEST
        return self.builder.extreme(self.operands(node.args), greatest=greatest, position=position_of(node))

    def collate(self, node: SyntaxNode) -> Operand:
        position, name = position_of(node), [part.sval for part in node.collname]
        arg = self._settled(self.operand(node.arg))
        if name[-1] not in ("C", "POSIX") or name[:-1] not in ([], ["pg_catalog"]):
            raise refused(f'the collation "{".".join(name)}" is not supported', position, 'Use COLLATE "C".')
        if (arg.type.element or arg.type).category != "S":
            raise refused(f"collations are not supported by type {arg.type}", position)
        return Collate(arg, arg.type)

    def part_of_array(self, node: SyntaxNode) -> Operand:
        position = position_of(node) or position_of(node.arg)
        array, steps = self.operand(node.arg), node.indirection
        if array.type.element is None or isinstance(array, Unknown):
            raise refused(f"cannot subscript type {array.type} because it does not support subscripting", position)
        if not all(isinstance(step, ast.A_Indices) for step in steps):
            raise refused("fields of composite values are not supported", position)
        if any(step.is_slice for step in steps):
            bounds = tuple(self._bounds(step, position) for step in steps)
            return build.fold(Slice(array, bounds, array.type), position)
        indices = tuple(self._index(step.uidx, position) for step in steps)
        return build.fold(Subscript(array, indices, array.type.element), position)

    def _bounds(self, step: SyntaxNode, position: int) -> tuple[Expr | None, Expr | None]:
        if not step.is_slice:  # a bare index among slices is `1:index`
            return Constant(1, INT4), self._index(step.uidx, position)
        low, high = (None if end is None else self._index(end, position) for end in (step.lidx, step.uidx))
        return low, high

    def _index(self, node: SyntaxNode, position: int) -> Expr:
        operand = self.operand(node)
        if operand.type not in (UNKNOWN, INT4, INT8) and operand.type.category != "N":
            raise refused("array subscript must have type integer", position)
        return self.builder.cast(operand, INT4, -1, position)


_PREFIXED: Final = re.compile("0[xob]", re.IGNORECASE)  # 0x1F, 0o17, 0b1


def _number(text: str, position: int) -> Constant:
    """A number that is no int4: bigger, or with a fraction."""
    try:
        value = read_numeric(text) if not _PREFIXED.match(text) else read_numeric(str(int(text, 0)))
    except (Invalid, ValueError) as error:
        raise refused(str(error), position) from None
    if text.isdigit() and value < RANGES["int8"]:
        return Constant(int(value), INT8)
    return Constant(value, NUMERIC)


def _operator_name(parts: Sequence[Any], position: int) -> str:
    names = [part.sval for part in parts]
    if len(names) == 2 and names[0] != "pg_catalog":
        raise refused(f"operators of the schema {names[0]} are not supported", position)
    return str(names[-1])


def _function_name(node: SyntaxNode) -> str:
    position, names = position_of(node), [part.sval for part in node.funcname]
    if len(names) > 1 and names[:-1] != ["pg_catalog"]:
        raise refused(f"unknown or unsupported function {'.'.join(names)}/{len(node.args or ())}", position)
    if node.agg_star or node.agg_distinct or node.agg_order or node.agg_filter or node.agg_within_group:
        raise refused(f"aggregate functions are not allowed in WHERE: {names[-1]}", position)
    if node.over is not None:
        raise refused("window functions are not allowed in WHERE", position)
    if node.func_variadic:
        raise refused("VARIADIC is not supported", position)
    return str(names[-1])


_NOT_BETWEEN: Final = (_KIND.AEXPR_NOT_BETWEEN, _KIND.AEXPR_NOT_BETWEEN_SYM)
_BETWEEN: Final = (_KIND.AEXPR_BETWEEN, _KIND.AEXPR_BETWEEN_SYM, *_NOT_BETWEEN)
_HANDLERS: Final[dict[type, Callable[[_Checker, Any], Operand]]] = {
    ast.A_Const: _Checker.constant,
    ast.ColumnRef: _Checker.column,
    ast.ParamRef: _Checker.parameter,
    ast.TypeCast: _Checker.cast,
    ast.A_ArrayExpr: _Checker.array,
    ast.BoolExpr: _Checker.logic,
    ast.NullTest: _Checker.null_test,
    ast.BooleanTest: _Checker.truth_test,
    ast.A_Expr: _Checker.expression,
    ast.FuncCall: _Checker.function,
    ast.CoalesceExpr: _Checker.coalesce,
    ast.MinMaxExpr: _Checker.extreme,
    ast.CollateClause: _Checker.collate,
    ast.A_Indirection: _Checker.part_of_array,
}
