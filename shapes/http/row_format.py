"""What the messages of a shape's rows have in common, and how they are put into a body. Pure."""

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from shapes.definition import Definition


class Style(Enum):
    """How messages are put into a body."""

    ARRAY = ("", ",")
    """In a JSON array; each is followed by a comma."""
    EVENTS = ("data: ", "\n\n")
    """As events of a stream."""

    @property
    def before(self) -> str:
        """In front of a message."""
        return self.value[0]

    @property
    def after(self) -> str:
        """Behind a message."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class RowFormat:
    """What all rows of a shape have in common."""

    schema: str
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    full: bool

    @classmethod
    def of(cls, definition: Definition) -> "RowFormat":
        """That of a shape."""
        view = definition.view
        return cls(definition.schema, definition.table, view.columns, view.key, view.full)

    @property
    def key_prefix(self) -> str:
        """What every row's key begins with."""
        return ".".join(f'"{name.replace(".", "..").replace("/", "//")}"' for name in (self.schema, self.table))


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The rows around those that are encoded, where there are any: they say how a transaction goes on."""

    before: pa.RecordBatch | None = None
    after: pa.RecordBatch | None = None
    is_end: bool = True
    """Where no row is after: whether the last transaction is whole."""
