"""The demo as people see it: a live table in a terminal, lines elsewhere, nothing for those who want JSON."""

from typing import Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cdc.demo.board import Board
from cdc.demo.conductor import State

FRAMES_A_SECOND: Final = 8
"""As many as look alive; more would cost the writer its processor."""

LINE_SECONDS: Final = 2.0
"""Between two lines about the state, where there is no terminal."""

_STATE_STYLES: Final = {State.KILLED: "bold red", State.STARTING: "yellow", State.DOOMED: "green"}


class Screen(Protocol):
    """Something that shows a board."""

    def show(self, board: Board) -> None:
        """Called often; shows what is new."""

    def close(self) -> None:
        """The last of it."""


class LiveScreen:
    """A table that changes in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()
        self._shown_at = 0.0

    def show(self, board: Board) -> None:
        if board.now - self._shown_at >= 1 / FRAMES_A_SECOND:
            self._shown_at = board.now
            self._live.update(drawn(board), refresh=True)

    def close(self) -> None:
        self._live.stop()


class LineScreen:
    """Lines, each of them once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = 0
        self._line_at = 0.0

    def show(self, board: Board) -> None:
        for at, text in list(board.news)[-(board.news_count - self._shown) or len(board.news) :]:
            self._console.print(f"{at:5.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)
        self._shown = board.news_count
        if board.now - self._line_at >= LINE_SECONDS and board.ready_at is not None:
            self._line_at = board.now
            self._console.print(_line(board), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """All is said."""


class NoScreen:
    """Nothing."""

    def show(self, board: Board) -> None:
        """Nobody looks."""

    def close(self) -> None:
        """Nobody looked."""


def drawn(board: Board) -> Group:
    """The whole picture."""
    return Group(_head(board), _table(board), _foot(board), *_news(board))


def _head(board: Board) -> Text:
    state = Text.assemble("writer ", (board.state.value, _STATE_STYLES.get(board.state, "")))
    return Text.assemble(
        ("shapelog demo  ", "bold"),
        state,
        f"   kills survived {board.recoveries - 1 if board.recoveries else 0}   {board.seconds_left:.0f} s left",
    )


def _table(board: Board) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("log")
    for title in ("V visible", "D durable", "reader 1", "reader 2", "last cut"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, facts in board.tables.items():
        read = [f"{facts.read[who]:,}" if who in facts.read else "-" for who in ("reader 1", "reader 2")]
        cut = f"{facts.cut:,}"
        table.add_row(name, facts.visible, facts.durable, *read, cut)
    return table


def _foot(board: Board) -> Text:
    lines = (
        f"{board.transactions:,} transactions; G {board.confirmed}: below it, the source may forget",
        "readers: rows seen and checked; last cut: rows without a commit, at recovery",
    )
    return Text("\n".join(lines), style="dim")


def _news(board: Board) -> list[Text]:
    return [Text(f"{at:5.1f} s  {text}", overflow="ellipsis", no_wrap=True) for at, text in board.news]


def _line(board: Board) -> str:
    rows = ", ".join(f"{name} {max(facts.read.values(), default=0)}" for name, facts in board.tables.items())
    at = board.now - board.started_at
    return f"{at:5.1f} s  {board.transactions} transactions committed, G {board.confirmed}; rows read: {rows}"
