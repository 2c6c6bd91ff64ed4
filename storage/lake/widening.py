"""When a column's type is altered: whether the table goes on, and with which columns. Pure.

A table goes on if every value that it has is a value of the new type, unchanged. Its older files are then written anew
with that type, in one commit with the first of the new ones, so that all files of a version have the types that the
table says. No reader needs to know of widening, of which most engines know a part.

Invariants:
    widens(a, b) and widens(b, c) imply widens(a, c)
    casting a value to a wider type and back gives the value
    a table's columns only become more, and wider; none goes while the table goes on
"""

import pyarrow as pa


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether each value of the old type is one of the new type; so for equal types."""
    if old == new:
        return True
    types = pa.types
    if types.is_list(old) and types.is_list(new):
        return widens(old.value_type, new.value_type)
    if types.is_integer(old) and types.is_integer(new):
        return bool(old.bit_width <= new.bit_width)
    if types.is_floating(old) and types.is_floating(new):
        return bool(old.bit_width <= new.bit_width)
    if types.is_decimal128(old) and types.is_decimal128(new):
        return bool(old.scale <= new.scale and old.precision - old.scale <= new.precision - new.scale)
    return False


def obstacle(known: pa.Schema, wanted: pa.Schema) -> str | None:
    """Why a table with the known columns cannot have rows with the wanted ones; None if it goes on."""
    spelled = {name.lower(): name for name in known.names}
    for field in wanted:
        name = spelled.get(field.name.lower(), field.name)
        if name != field.name:  # no engine keeps the two apart
            return f"column {field.name} was spelled {name}"
        old = known.field(name).type if name in known.names else field.type
        if not widens(old, field.type):
            return f"column {field.name} was {old} and is {field.type}"
    return None


def joined(known: pa.Schema | None, wanted: pa.Schema) -> pa.Schema:
    """The columns of a table that goes on: those it had, as wide as they are wanted, and behind them the new ones."""
    if known is None:
        return wanted
    kept = [wanted.field(field.name) if field.name in wanted.names else field for field in known]
    return pa.schema([*kept, *(field for field in wanted if field.name not in known.names)])


def is_wider(known: pa.Schema, columns: pa.Schema) -> bool:
    """Whether older files have a narrower column, and so must be written anew."""
    return any(field.type != columns.field(field.name).type for field in known if field.name in columns.names)
