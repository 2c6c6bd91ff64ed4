"""What is known of a running demo, for those who show it. Pure: it is told what happens, with the time."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from cdc.demo.conductor import State
from cdc.demo.messages import Failed, Message, Progress, Read, ReadAll, Recovered
from cdc.demo.shop import TABLES

NEWS_KEPT: Final = 6
"""Lines: what fits under the table without moving it off a small terminal."""


@dataclass(slots=True)
class TableFacts:
    """Where one table's log stands."""

    visible: str = "-"
    durable: str = "-"
    cut: int = 0
    """Rows that the last recovery cut."""
    read: dict[str, int] = field(default_factory=dict)
    """Rows that each reader has seen and checked."""


@dataclass(slots=True)
class Board:
    """The present state, and the sums for the summary."""

    seconds: float
    """How long the demo is to run."""
    started_at: float
    ready_at: float | None = None
    """When the first writer was ready: the demo's time counts from there."""
    now: float = 0.0
    state: State = State.STARTING
    kills: int = 0
    recoveries: int = 0
    confirmed: int = 0
    transactions: int = 0
    cut_rows: int = 0
    again: int = 0
    slowest_recovery_seconds: float = 0.0
    tables: dict[str, TableFacts] = field(default_factory=lambda: {table: TableFacts() for table in TABLES})
    news: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=NEWS_KEPT))
    news_count: int = 0

    @property
    def seconds_left(self) -> float:
        """Of the time that the demo is to run."""
        return self.seconds if self.ready_at is None else max(0.0, self.ready_at + self.seconds - self.now)

    def hear(self, who: str, message: Message) -> None:
        """Take in what a process said."""
        match message:
            case Recovered():
                self._recovered(message)
            case Progress():
                self.confirmed, self.transactions = message.confirmed, message.transactions
                for table, facts in self.tables.items():
                    facts.visible, facts.durable = message.visible[table], message.durable[table]
            case Read(rows) | ReadAll(rows):
                for table, count in rows.items():
                    self.tables[table].read[who] = count
            case Failed():
                self.tell(f"{who}: {message.message}")
            case _:
                pass

    def killed(self, pid: int) -> None:
        """The writer got its SIGKILL."""
        self.kills += 1
        self.tell(f"kill {self.kills}: SIGKILL for the writer, process {pid}")

    def tell(self, text: str) -> None:
        """Something worth a line."""
        self.news.append((self.now - self.started_at, text))
        self.news_count += 1

    def _recovered(self, message: Recovered) -> None:
        self.recoveries += 1
        if self.recoveries > 1:  # the first one may have made the logs, too
            self.slowest_recovery_seconds = max(self.slowest_recovery_seconds, message.seconds)
        self.again += message.again
        cut = sum(message.cut.values())
        self.cut_rows += cut
        for table, count in message.cut.items():
            self.tables[table].cut = count
        if self.recoveries == 1 and not cut and not message.again:
            self.tell(f"the writer is ready after {message.seconds * 1000:.0f} ms")
            return
        self.tell(
            f"recovered in {message.seconds * 1000:.0f} ms: {cut:,} uncommitted rows cut, {message.again} sent again"
        )
