"""The demo as people see it: a live table in a terminal, lines elsewhere, nothing for those who want JSON."""

from typing import Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cdc.demo.board import Board, State
from cdc.wording import size_words

FRAMES_A_SECOND: Final = 8
"""As many as look alive; more would cost the others their processor."""

LINE_SECONDS: Final = 2.0
"""Between two lines about the state, where there is no terminal."""

_STATE_STYLES: Final = {State.PREPARING: "yellow", State.KILLED: "bold red", State.STARTING: "yellow"}


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
        self._board: Board | None = None

    def show(self, board: Board) -> None:
        self._board = board
        if board.now - self._shown_at >= 1 / FRAMES_A_SECOND:
            self._shown_at = board.now
            self._live.update(drawn(board), refresh=True)

    def close(self) -> None:
        if self._board is not None and self._live.is_started:
            self._live.update(drawn(self._board), refresh=True)
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
    state = Text.assemble("the server ", (board.state.value, _STATE_STYLES.get(board.state, "green")))
    kills = f"   kills {board.kills}   {board.seconds_left:.0f} s left\n"
    console = Text(board.console_url, style=f"link {board.console_url}") if board.console_url else Text("-")
    return Text.assemble(("shapelog demo  ", "bold"), state, kills, "console  ", console)


def _table(board: Board) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("shape")
    for title in ("rows in Postgres", "over HTTP", "changes", "durable up to"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, facts in board.shapes.items():
        written = "-" if facts.written is None else f"{facts.written:,}"
        table.add_row(name, written, f"{facts.read:,}", f"{facts.changes:,}", facts.durable)
    return table


def _foot(board: Board) -> Text:
    lag = "-" if board.lag_bytes is None else size_words(board.lag_bytes)
    lines = (
        f"{board.transactions:,} transactions committed, {board.rolled_back:,} rolled back",
        f"G {board.confirmed}: below it, Postgres may forget; it is {lag} behind",
        f"lake  {board.lake or '-'}",
    )
    return Text("\n".join(lines), style="dim", no_wrap=True, overflow="ellipsis")


def _news(board: Board) -> list[Text]:
    return [Text(f"{at:5.1f} s  {text}", overflow="ellipsis", no_wrap=True) for at, text in board.news]


def _line(board: Board) -> str:
    rows = ", ".join(f"{name} {facts.read}" for name, facts in board.shapes.items())
    at = board.now - board.started_at
    return f"{at:5.1f} s  {board.transactions} transactions committed, G {board.confirmed}; rows over HTTP: {rows}"
