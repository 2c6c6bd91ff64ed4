"""The shapes that the demo follows: each table, and a part of one."""

from dataclasses import dataclass
from typing import Final, LiteralString

from cdc.demo.tables import KEYS, TABLES


@dataclass(frozen=True, slots=True)
class DemoShape:
    """A shape, as it is asked for."""

    name: str
    table: LiteralString
    where: LiteralString | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of its key."""
        return KEYS[self.table]


TABLE_SHAPES: Final = tuple(DemoShape(table, table) for table in TABLES)

OPEN_ORDERS: Final = DemoShape("open_orders", "orders", "status = 'placed'")
"""Orders come into it, and leave it when they are paid."""

SHAPES: Final = (*TABLE_SHAPES, OPEN_ORDERS)
