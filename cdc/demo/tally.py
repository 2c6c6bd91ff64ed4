"""How much was committed: of each table the changes, which whoever follows it must get, and the rows. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from cdc.demo.tables import Statement


@dataclass(slots=True)
class Tally:
    """Sums over committed transactions."""

    transactions: int = 0
    rolled_back: int = 0
    large: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    """Of each table: rows inserted, updated and deleted; a change of a key is a delete and an insert."""
    rows: Counter[str] = field(default_factory=Counter)

    def committed(self, statements: Iterable[Statement], *, is_large: bool) -> None:
        """A transaction is done."""
        self.transactions += 1
        self.large += is_large
        for one in statements:
            self.changes[one.table] += one.inserted + one.updated + one.deleted
            self.rows[one.table] += one.inserted - one.deleted
