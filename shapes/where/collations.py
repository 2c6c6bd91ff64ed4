"""Under which collation an expression is compared, and whether we can do that here.

A collation that is written wins, then that of the columns; of several, the one that we know least of counts.
"""

from typing import Final

from shapes.where.tree import Cast, Collate, Column, Constant, Expr, children
from shapes.where.types import NAME, Collation, Type

_ORDER: Final = (Collation.C, Collation.BYTES, Collation.LANGUAGE, Collation.LOOSE)  # from known to unknown


def is_text(kind: Type) -> bool:
    """Whether comparing such values takes a collation."""
    return (kind.element or kind).category == "S"


def collation_of(nodes: tuple[Expr, ...]) -> Collation:
    """What an operator on these operands compares by."""
    found = [each for node in nodes for each in [_derived(node)] if each is not None]
    if any(is_written for _, is_written in found):
        return Collation.C  # no other can be written
    return max((collation for collation, _ in found), key=_ORDER.index, default=Collation.LANGUAGE)


def _derived(node: Expr) -> tuple[Collation, bool] | None:
    """Collation, and whether it was written; None for constants, which take that of the other side."""
    if not is_text(node.type):
        return None
    match node:
        case Collate():
            return Collation.C, True
        case Column():
            return (Collation.C if (node.type.element or node.type) == NAME else node.collation), False
        case Constant():
            return None
        case Cast() if not is_text(node.arg.type):
            return Collation.LANGUAGE, False  # the database's own, which we do not know
    below = [found for child in children(node) if (found := _derived(child)) is not None]
    if not below:
        return Collation.LANGUAGE, False
    return max(below, key=lambda found: (found[1], _ORDER.index(found[0])))
