"""Keys for the index: what a column's values and a clause's constants are looked up by.

Values of a column that Postgres calls equal have the same key, and no others have; a constant has the key of the values
that it equals. What that means for a type is `shapes.where.canonical`'s to say.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from shapes.where.canonical import canonical, constant_key, element_keys, has_keys
from shapes.where.tree import Cast, Collate, Column, Constant, Expr
from shapes.where.types import INT8, TEXT, Collation, Type

Key: TypeAlias = str

# Types of which one is enough, since their texts are the same: a column is then encoded once for clauses of either.
_ALIKE: Final = {"int2": INT8, "int4": INT8, "varchar": TEXT, "name": TEXT}
# Conversions after which the column's own text still tells its values apart, by the keys of the new type.
_HARMLESS: Final = {
    ("int2", "int4"), ("int2", "int8"), ("int4", "int8"), ("int2", "numeric"), ("int4", "numeric"), ("int8", "numeric"),
    ("varchar", "text"), ("name", "text"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeyedColumn:
    """A column, and the type by which its values are told apart."""

    name: str
    type: Type


def keyed_column(node: Expr) -> KeyedColumn | None:
    """The column that an expression is, whatever it is converted to; None where keys do not tell what equals it."""
    kind = node.type
    while isinstance(node, Cast | Collate):
        if isinstance(node, Cast) and not (node.typmod < 0 and _is_harmless(node.arg.type, node.type)):
            return None
        node = node.arg
    if not isinstance(node, Column) or node.collation is Collation.LOOSE or not has_keys(kind):
        return None
    return KeyedColumn(node.name, _ALIKE.get(kind.name, kind))


def _is_harmless(source: Type, target: Type) -> bool:
    if source.element is not None and target.element is not None:
        return _is_harmless(source.element, target.element)
    return source == target or (source.name, target.name) in _HARMLESS or (source.category == "E" and target == TEXT)


def keys_of_column(kind: Type, texts: pa.StringArray) -> list[Key]:
    """The keys of a column's texts, of which none is NULL."""
    keys: list[Key] = canonical(kind, texts).to_numpy(zero_copy_only=False).tolist()
    return keys


def elements_of_column(kind: Type, texts: pa.StringArray) -> list[frozenset[Key]]:
    """The keys of each array's elements; NULL elements are left out, since nothing contains them."""
    return [frozenset(keys or ()) for keys in element_keys(kind, texts).to_pylist()]


def keys_of_value(kind: Type, constant: Constant) -> frozenset[Key] | None:
    """The key of a column's values that equal the constant; none for NULL. None where keys do not tell."""
    if constant.value is None:
        return frozenset()
    key = constant_key(kind, constant)
    return None if key is None else frozenset([key])


def keys_of_elements(kind: Type, constant: Constant) -> frozenset[Key] | None:
    """The same for each element of a constant array that is not NULL."""
    items = [Constant(item, element) for item, element in _items(constant) if item is not None]
    keys = [constant_key(kind, item) for item in items]
    found = frozenset(key for key in keys if key is not None)
    return None if None in keys else found


def has_null(constant: Constant) -> bool:
    """Whether a constant array is NULL or has a NULL element."""
    return constant.value is None or None in constant.value.items


def _items(constant: Constant) -> list[tuple[Any, Type]]:
    element = constant.type.element
    if constant.value is None or element is None:
        return []
    return [(item, element) for item in constant.value.items]
