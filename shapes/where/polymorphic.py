"""Operators and functions whose types follow from each other: arrays, text with anything, `concat`."""

from collections.abc import Callable
from typing import Final

from shapes.where.coercion import common_type
from shapes.where.operators import COMPARISONS, SIGNATURES, Signature, comparison, signature_of
from shapes.where.types import BOOL, INT4, SCALARS, TEXT, UNKNOWN, Type, array_of
from shapes.where.values import arrays
from shapes.where.values.arrays import Array
from shapes.where.values.io import sort_key, writer
from shapes.where.values.value import Value

_POLYMORPHIC: Final = frozenset({"||", "@>", "<@", "&&"})
NOT_STRICT: Final = frozenset({"array_cat", "array_append", "array_prepend", "concat"})
"""Called with NULL arguments too; so is `||` of arrays."""
FUNCTION_NAMES: Final = NOT_STRICT | {"array_ndims"}


def is_strict(name: str, args: tuple[Type, ...]) -> bool:
    """Whether NULL in any argument makes NULL of the result."""
    return not (name in NOT_STRICT or (name == "||" and any(kind.element for kind in args)))


def is_operator(name: str, operands_count: int) -> bool:
    """Whether there is any operator of this name with so many operands."""
    return (name in _POLYMORPHIC and operands_count == 2) or any(
        len(found.args) == operands_count for found in SIGNATURES.get(name, ())
    )


def signature_for(name: str, args: tuple[Type, ...]) -> Signature:
    """What a typed call stands for."""
    found = signature_of(name, args) or resolve_polymorphic(name, args)
    assert found is not None, (name, args)
    return found


def resolve_polymorphic(name: str, kinds: tuple[Type, ...]) -> Signature | None:
    """The operator or function for these arguments, quoted constants being `unknown`; None where there is none."""
    if name == "concat":
        args = tuple(TEXT if kind == UNKNOWN else kind for kind in kinds)
        return None if any(kind.category in "?E" for kind in args) else Signature(name, args, TEXT, _concat(args))
    if name == "array_ndims" and len(kinds) == 1 and kinds[0].element is not None:
        return Signature(name, kinds, INT4, lambda array: len(array.dims) or None)
    if len(kinds) != 2:
        return None
    if name == "array_append":
        return _with_element(name, kinds[0], kinds[1], in_front=False)
    if name == "array_prepend":
        return _with_element(name, kinds[1], kinds[0], in_front=True)
    if any(kind.element is not None for kind in kinds):
        return _on_arrays(name, *kinds)
    return _text_with_anything(*kinds) if name == "||" else None


def _text_with_anything(left: Type, right: Type) -> Signature | None:
    """One side is text; or a quoted constant, which then is text."""
    if "S" in (left.category, right.category) or UNKNOWN in (left, right):
        return Signature("||", (TEXT, TEXT), TEXT, lambda a, b: a + b)
    return None


def _on_arrays(name: str, left: Type, right: Type) -> Signature | None:
    left, right = (right if left == UNKNOWN else left), (left if right == UNKNOWN else right)
    if name in ("||", "array_cat"):
        if left.element is None:
            return _with_element(name, right, left, in_front=True) if name == "||" else None
        if right.element is None:
            return _with_element(name, left, right, in_front=False) if name == "||" else None
        element = common_type((left.element, right.element))
        if element is None:
            return None
        return Signature(name, (array_of(element),) * 2, array_of(element), arrays.concatenate)
    if left != right or left.element is None:
        return None
    if name in COMPARISONS:
        return comparison(name, left, right)
    if name in _CONTAINMENTS:
        return Signature(name, (left, right), BOOL, _containment(name, left.element))
    return None


def _with_element(name: str, array: Type, element: Type, *, in_front: bool) -> Signature | None:
    if array == UNKNOWN and element in SCALARS:
        array = array_of(element)
    if array.element is None or element.element is not None:
        return None
    common = common_type((array.element, element))
    if common is None:
        return None
    whole = array_of(common)
    if in_front:
        return Signature(name, (common, whole), whole, arrays.prepend)
    return Signature(name, (whole, common), whole, arrays.append)


def _containment(name: str, element: Type) -> Callable[[Array, Array], bool]:
    key, decide = sort_key(element), _CONTAINMENTS[name]

    def run(left: Array, right: Array) -> bool:
        # NULL elements equal nothing: as part of what must be contained they never are.
        left_keys, right_keys = ({key(item) for item in side.items if item is not None} for side in (left, right))
        return decide(left_keys, right_keys, None in left.items, None in right.items)

    return run


_CONTAINMENTS: Final[dict[str, Callable[[set[Value], set[Value], bool, bool], bool]]] = {
    "@>": lambda left, right, _, right_has_null: right <= left and not right_has_null,
    "<@": lambda left, right, left_has_null, _: left <= right and not left_has_null,
    "&&": lambda left, right, *_: not left.isdisjoint(right),
}


def _concat(args: tuple[Type, ...]) -> Callable[..., str]:
    writers = [writer(kind) for kind in args]

    def run(*values: Value) -> str:
        pairs = zip(writers, values, strict=True)
        return "".join(write(value) for write, value in pairs if value is not None)

    return run
