"""Who holds what we wait for: a session or a prepared transaction, named so that a person can act. Pure.

Its query is never shown: a statement's text may hold what nobody else should read.
"""

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Holder:
    """A session, or a prepared transaction, which has no process."""

    pid: int | None
    application: str
    user: str
    state: str
    transaction_seconds: float | None
    prepared: str | None = None

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Self:
        return cls(
            row["pid"],
            row["application"] or "",
            row["usename"] or "",
            row["state"] or "",
            row["transaction_seconds"],
            row.get("prepared"),
        )

    def __str__(self) -> str:
        age = "" if self.transaction_seconds is None else f", transaction open for {self.transaction_seconds:.0f} s"
        if self.prepared is not None:
            return f"prepared transaction {self.prepared!r} of {self.user}{age}"
        name = f" ({self.application})" if self.application else ""
        return f"process {self.pid}{name} of {self.user}, {self.state or 'state unknown'}{age}"

    @property
    def mend(self) -> str:
        """The statement that ends it, for a person to run."""
        if self.prepared is not None:
            quoted = self.prepared.replace("'", "''")
            return f"ROLLBACK PREPARED '{quoted}';"
        return f"SELECT pg_terminate_backend({self.pid});"
