"""Names of types in a cast: which type, and its modifier."""

from pglast import ast

from shapes.where.build import refused
from shapes.where.parse import SyntaxNode, position_of
from shapes.where.types import BY_NAME, Type, array_of

_LENGTH_MAX = 10_485_760
_PRECISION_MAX = 1000
_FRACTION_DIGITS_MAX = 6


def type_of_name(name: SyntaxNode, position: int) -> tuple[Type, int]:
    """The type, and its modifier or -1."""
    position = position_of(name) or position
    parts = [part.sval for part in name.names or ()]
    if len(parts) == 2 and parts[0] == "pg_catalog":
        parts = parts[1:]
    kind = BY_NAME.get(parts[0]) if len(parts) == 1 else None
    if kind is None or name.setof or name.pct_type:
        shown = ".".join(parts)
        raise refused(
            f'type "{shown}" is not supported', position, "Cast the column to text instead: column::text = 'value'."
        )
    typmod = _typmod(kind, [_number(node, position) for node in name.typmods or ()], position)
    if name.arrayBounds:
        if kind.element is not None:
            raise refused(f'type "{kind}[]" is not supported', position)
        kind = array_of(kind)
    return kind, typmod


def _number(node: SyntaxNode, position: int) -> int:
    value = node.val if isinstance(node, ast.A_Const) else None
    if not isinstance(value, ast.Integer):
        raise refused("type modifiers must be simple constants", position)
    return int(value.ival or 0)


def _typmod(kind: Type, numbers: list[int], position: int) -> int:
    """The modifier as Postgres keeps it."""
    if not numbers:
        return -1
    match kind.name, numbers:
        case (("varchar" | "bpchar"), [length]) if 0 < length <= _LENGTH_MAX:
            return length + 4
        case "numeric", [precision] if 0 < precision <= _PRECISION_MAX:
            return (precision << 16) + 4
        case "numeric", [precision, scale] if 0 < precision <= _PRECISION_MAX and abs(scale) <= _PRECISION_MAX:
            return (precision << 16 | scale & 0x7FF) + 4
        case (("time" | "timestamp" | "timestamptz"), [digits]) if 0 <= digits <= _FRACTION_DIGITS_MAX:
            return digits
        case "interval", [field]:
            return field
    shown = ", ".join(map(str, numbers))
    raise refused(f"the modifier ({shown}) is not supported for type {kind}", position)
