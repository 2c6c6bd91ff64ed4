"""The shapes that the demo follows: each table, and a part of one."""

from dataclasses import dataclass
from typing import Any, Final, LiteralString

from cdc.demo.tables import KEYS, TABLES


@dataclass(frozen=True, slots=True)
class DemoShape:
    """A shape of the shop."""

    name: str
    table: LiteralString
    where: LiteralString | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of its key."""
        return KEYS[self.table]

    @property
    def asked(self) -> dict[str, Any]:
        """How a server is asked for it."""
        return {"name": self.name, "table": self.table, "where": self.where}


TABLE_SHAPES: Final = tuple(DemoShape(table, table) for table in TABLES)

OPEN_ORDERS: Final = DemoShape("open_orders", "orders", "status = 'placed'")
"""Orders come into it, and leave it when they are paid."""

SHAPES: Final = (*TABLE_SHAPES, OPEN_ORDERS)
