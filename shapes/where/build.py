"""Typed nodes from typed operands: operators resolved, operands converted, constants folded, parameters given types.

Every refusal is an `InvalidWhere` with its place. Where Postgres has words for it, they are used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shapes.errors import InvalidWhere
from shapes.where.coercion import common_type, is_explicit, is_implicit, read_constant
from shapes.where.collations import collation_of, is_text
from shapes.where.operators import COMPARISONS, EQUALITIES, LIKES, Signature
from shapes.where.parse import is_sendable
from shapes.where.polymorphic import is_operator, is_strict, resolve_polymorphic
from shapes.where.resolution import Ambiguous, resolve, resolve_operator
from shapes.where.scalar import compile_scalar
from shapes.where.tree import (
    And,
    AnyAll,
    Call,
    Cast,
    Coalesce,
    Constant,
    Expr,
    Extreme,
    IsNull,
    IsTruth,
    MakeArray,
    Not,
    Or,
    children,
)  # fmt: skip
from shapes.where.types import BOOL, TEXT, UNKNOWN, Collation, Type, array_of
from shapes.where.values.intervals import FIELDS, read_field
from shapes.where.values.strings import like_pieces
from shapes.where.values.value import Invalid


@dataclass(frozen=True, slots=True)
class Unknown:
    """A quoted constant, NULL (None) or a parameter: its context says what type it has."""

    text: str | None
    position: int | None
    """None for quoted constants: where one stands is looked up when it is wrong."""
    parameter: int | None = None
    type: Type = UNKNOWN


Operand: TypeAlias = Expr | Unknown

TRUE = Constant(True, BOOL)
FALSE = Constant(False, BOOL)


class Builder:
    """Makes nodes; knows the parameters and which types they were given."""

    def __init__(self, parameters: Mapping[int, str | None], locate: Callable[[str], int]) -> None:
        self._locate = locate
        self._parameters = parameters
        self._parameter_types: dict[int, Type] = {}

    def parameter(self, number: int, position: int) -> Unknown:
        """`$n`."""
        if number not in self._parameters:
            raise refused(f"parameter ${number} was not provided", position)
        text = self._parameters[number]
        if text is not None and not is_sendable(text):
            raise refused(f"parameter ${number} is not Unicode text, or has a NUL character", position)
        return Unknown(text, position, number)

    def coerce(self, operand: Operand, target: Type, position: int, typmod: int = -1) -> Expr:
        """The operand in a type that it becomes by itself."""
        if isinstance(operand, Unknown):
            return self._typed(operand, target, typmod)
        if operand.type == target and typmod < 0:
            return operand
        return fold(Cast(operand, target, typmod), position)

    def cast(self, operand: Operand, target: Type, typmod: int, position: int) -> Expr:
        """A conversion that is written."""
        if isinstance(operand, Unknown):
            return self._typed(operand, target, typmod)
        if not is_explicit(operand.type, target):
            raise refused(f"cannot cast type {operand.type} to {target}", position)
        return self.coerce(operand, target, position, typmod)

    def _typed(self, operand: Unknown, target: Type, typmod: int) -> Constant:
        number = operand.parameter
        if number is not None and self._parameter_types.setdefault(number, target) != target:
            known = self._parameter_types[number]
            hint = f"Write ${number}::{known} (or another type) everywhere, or use two parameters."
            raise refused(f"parameter ${number} cannot be both {known} and {target}", operand.position, hint)
        if operand.text is None:
            return Constant(None, target)
        try:
            if target.name == "interval" and typmod in FIELDS:
                return Constant(read_field(operand.text, FIELDS[typmod]), target)
            return Constant(read_constant(operand.text, target, typmod), target)
        except Invalid as error:
            at_text = operand.position is None
            raise refused(str(error), self._locate(operand.text) if at_text else operand.position) from None

    def boolean(self, operand: Operand, what: str, position: int) -> Expr:
        """An argument of AND, OR, NOT and the like."""
        if operand.type not in (BOOL, UNKNOWN):
            raise refused(f"argument of {what} must be type boolean, not type {operand.type}", position)
        return self.coerce(operand, BOOL, position)

    def operator(self, name: str, operands: Sequence[Operand], position: int) -> Expr:
        """`left + right`, `- right`."""
        operands = self._enums_as_text(name, operands, position)
        kinds = tuple(operand.type for operand in operands)
        found = self._find_operator(name, kinds, position)
        args = self._arguments(found, operands, position)
        self._check_collation(name, args, position)
        return self._call(found, args, position)

    def _find_operator(self, name: str, kinds: tuple[Type, ...], position: int) -> Signature:
        try:
            found = resolve_polymorphic(name, kinds) or resolve_operator(name, kinds)
        except Ambiguous:
            raise refused(f"operator is not unique: {_written(name, kinds)}", position, _ADD_CASTS) from None
        if found is None:
            raise self._no_operator(name, kinds, position)
        if name == "^" and "numeric" in {kind.name for kind in kinds}:
            raise refused("the power of numeric values is not supported", position, "Cast both to double precision.")
        return found

    def _no_operator(self, name: str, kinds: tuple[Type, ...], position: int) -> InvalidWhere:
        for kind in kinds:
            if kind.category == "?":
                return refused(f"{name} is not supported for type {kind}", position, _AS_TEXT)
        if not is_operator(name, len(kinds)):
            return refused(f"the operator {name} is not supported", position)
        return refused(f"operator does not exist: {_written(name, kinds)}", position, _ADD_CASTS)

    def _arguments(self, found: Signature, operands: Sequence[Operand], position: int) -> tuple[Expr, ...]:
        pairs = zip(operands, found.args, strict=True)
        return tuple(
            self.coerce(operand, kind, position)
            if operand.type == UNKNOWN or is_implicit(operand.type, kind)
            else self.cast(operand, kind, -1, position)  # anything || text
            for operand, kind in pairs
        )

    def _enums_as_text(self, name: str, operands: Sequence[Operand], position: int) -> Sequence[Operand]:
        """Labels of an enum are equal exactly if they are as texts; their order is not known here."""
        enums = {operand.type for operand in operands if operand.type.category == "E"}
        others = {operand.type for operand in operands} - enums - {UNKNOWN}
        if not enums or len(enums) > 1 or others:
            return operands
        if name not in EQUALITIES:
            (kind,) = enums
            raise refused(
                f"{name} is not supported for the enum {kind}", position, "Cast the column to text, or use = and IN."
            )
        return [self.coerce(operand, TEXT, position) for operand in operands]

    def label(self, enum: Operand, others: Sequence[Operand | list[Operand]], position: int) -> Operand:
        """A value of an enum as text, where it is compared with constants only."""
        is_comparable = all(isinstance(other, Unknown) for other in others)
        return self.coerce(enum, TEXT, position) if is_comparable else enum

    def _check_collation(self, name: str, args: tuple[Expr, ...], position: int) -> None:
        if not any(is_text(arg.type) for arg in args) or not is_collated(name):
            return
        collation = collation_of(args)
        needed = _NEEDED.get(name, _BY_BYTES if name in COMPARISONS else _KNOWN)
        if collation not in needed:
            hint = 'Write COLLATE "C" behind the column or value: the order, and the case of letters, by bytes.'
            raise refused(f"{name} needs the rules of a language here, which only the server has", position, hint)

    def _call(self, found: Signature, args: tuple[Expr, ...], position: int) -> Expr:
        call = Call(found.name, args, found.result)
        if found.name in LIKES and isinstance(args[1], Constant) and args[1].value is not None:
            self._check_pattern(args[1].value, position)
        if is_strict(found.name, found.args) and any(isinstance(arg, Constant) and arg.value is None for arg in args):
            return Constant(None, found.result)
        if found.name == "timezone":
            self._check_zone(found, args[0], position)
        return fold(call, position)

    def _check_zone(self, found: Signature, zone: Expr, position: int) -> None:
        if not isinstance(zone, Constant):
            raise refused("a time zone must be a constant", position)
        try:
            found.run(zone.value, 0)
        except Invalid as error:
            raise refused(str(error), position) from None

    def _check_pattern(self, pattern: str, position: int) -> None:
        """Postgres would say so at the first row that gets so far."""
        try:
            like_pieces(pattern)
        except Invalid as error:
            raise refused(str(error), position) from None

    def function(self, name: str, operands: Sequence[Operand], position: int) -> Expr:
        """`lower(x)`; the name is known to exist."""
        kinds = tuple(operand.type for operand in operands)
        try:
            found = resolve_polymorphic(name, kinds) or resolve(name, kinds)
        except Ambiguous:
            raise refused(f"function {name}({_listed(kinds)}) is not unique", position, _ADD_CASTS) from None
        if found is None:
            raise refused(f"function {name}({_listed(kinds)}) does not exist", position, _ADD_CASTS)
        args = self._arguments(found, operands, position)
        self._check_collation(name, args, position)
        return self._call(found, args, position)

    def any_all(self, name: str, left: Operand, array: Operand, *, all_: bool, position: int) -> Expr:
        """`left = ANY (array)`."""
        element = UNKNOWN if array.type == UNKNOWN else array.type.element
        if array.type.category == "?":
            raise refused(f"ANY and ALL are not supported for type {array.type}", position)
        if element is None:
            raise refused("op ANY/ALL (array) requires array on right side", position)
        if left.type.category == "E" and array.type == UNKNOWN:
            left = self._enums_as_text(name, [left], position)[0]
        kinds = (left.type, element)
        found = self._find_operator(name, kinds, position)
        if found.result != BOOL:
            raise refused("op ANY/ALL (array) requires operator to yield boolean", position)
        if found.args[1].element is not None:
            raise refused(f"operator does not exist: {_written(name, kinds)}", position)
        left_arg = self.coerce(left, found.args[0], position)
        array_arg = self.coerce(array, array_of(found.args[1]), position)
        self._check_collation(name, (left_arg, array_arg), position)
        return fold(AnyAll(name, left_arg, array_arg, all_), position)

    def common(self, operands: Sequence[Operand], what: str, position: int) -> tuple[list[Expr], Type]:
        """All in the type that they have in common."""
        kinds = [operand.type for operand in operands]
        kind = common_type(kinds)
        if kind is None or kind.category in "?E":
            known = [str(kind) for kind in dict.fromkeys(kinds) if kind != UNKNOWN]
            hint = "Cast them to one type, such as text."
            raise refused(f"{what} types {' and '.join(known)} cannot be matched", position, hint)
        return [self.coerce(operand, kind, position) for operand in operands], kind

    def coalesce(self, operands: Sequence[Operand], position: int) -> Expr:
        """COALESCE."""
        args, kind = self.common(operands, "COALESCE", position)
        return fold(Coalesce(tuple(args), kind), position)

    def extreme(self, operands: Sequence[Operand], *, greatest: bool, position: int) -> Expr:
        """GREATEST or LEAST."""
        args, kind = self.common(operands, "GREATEST" if greatest else "LEAST", position)
        self._check_collation("<", tuple(args), position)
        return fold(Extreme(tuple(args), greatest, kind), position)

    def array(self, operands: Sequence[Operand], position: int) -> Expr:
        """`ARRAY[..]`."""
        args, kind = self.common(operands, "ARRAY", position)
        return fold(MakeArray(tuple(args), kind if kind.element is not None else array_of(kind)), position)


_AS_TEXT = "Only IS NULL and ::text are known of this type: write column::text = 'value'."
_ADD_CASTS = "Add explicit casts, such as ::text, or see docs/where.md for what is known."
_BY_BYTES = frozenset({Collation.C, Collation.BYTES})
_KNOWN = frozenset({Collation.C, Collation.BYTES, Collation.LANGUAGE})
_NEEDED = {
    **dict.fromkeys(("lower", "upper", "~~*", "!~~*"), frozenset({Collation.C})),
    **dict.fromkeys((*EQUALITIES, "~~", "!~~", "@>", "<@", "&&"), _KNOWN),
}


def is_collated(name: str) -> bool:
    """Whether what it does depends on a collation."""
    return name in _NEEDED or name in COMPARISONS or name in LIKES


def refused(reason: str, position: int | None, hint: str | None = None) -> InvalidWhere:
    """What to raise for a clause that cannot be."""
    return InvalidWhere(reason, position=position, hint=hint)


def fold(node: Expr, position: int) -> Expr:
    """The constant that the node is, if all below it are constants."""
    if not all(isinstance(child, Constant) for child in children(node)):
        return node
    try:
        return Constant(compile_scalar(node, ())(()), node.type)
    except Invalid as error:
        raise refused(str(error), position) from None


def conjunction(args: Sequence[Expr]) -> Expr:
    """AND, without what does not matter."""
    return _junction(And, args, neutral=TRUE, decisive=FALSE)


def disjunction(args: Sequence[Expr]) -> Expr:
    """OR, without what does not matter."""
    return _junction(Or, args, neutral=FALSE, decisive=TRUE)


def _junction(kind: type[And] | type[Or], args: Sequence[Expr], *, neutral: Constant, decisive: Constant) -> Expr:
    flat: list[Expr] = []
    for arg in args:
        flat += arg.args if isinstance(arg, kind) else [arg]
    if any(arg is decisive or _is(arg, decisive) for arg in flat):
        return decisive
    kept = [arg for arg in flat if not _is(arg, neutral)]
    if not kept:
        return neutral
    if all(isinstance(arg, Constant) for arg in kept):
        return Constant(None, BOOL)
    return kept[0] if len(kept) == 1 else kind(tuple(kept))


def _is(node: Expr, constant: Constant) -> bool:
    return isinstance(node, Constant) and node.value is constant.value


def negation(node: Expr, position: int) -> Expr:
    """NOT."""
    return fold(Not(node), position)


def is_null(node: Expr, position: int) -> Expr:
    """IS NULL. Of a type that we cannot read only the text is known: a composite of NULLs is not NULL by that."""
    if node.type.category == "?":
        node = Cast(node, TEXT)
    return fold(IsNull(node), position)


def is_truth(node: Expr, truth: bool, position: int) -> Expr:  # noqa: FBT001 - it is a value here
    """IS TRUE or IS FALSE."""
    return fold(IsTruth(node, truth), position)


def _written(name: str, kinds: tuple[Type, ...]) -> str:
    return f"{name} {kinds[0]}" if len(kinds) == 1 else f"{kinds[0]} {name} {kinds[1]}"


def _listed(kinds: tuple[Type, ...]) -> str:
    return ", ".join(map(str, kinds))
