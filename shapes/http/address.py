"""A shape as the parameters that ask for it: what a reader who has its name is told to follow. Pure.

Invariant: whoever asks with them, of the same table, means the same shape.
"""

from shapes.definition import Definition
from shapes.where.sql import quoted_name


def parameters_of(definition: Definition) -> dict[str, str]:
    """Those of the shape protocol, apart from the reader's own: where he stands."""
    asked = {
        "table": f"{quoted_name(definition.schema)}.{quoted_name(definition.table)}",
        "replica": definition.replica.value,
        "log": definition.log.value,
    }
    if definition.where is not None:
        asked["where"] = definition.where
    if not definition.selects_all:
        asked["columns"] = ",".join(quoted_name(column.name) for column in definition.columns)
    return asked
