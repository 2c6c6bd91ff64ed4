"""The demo's screens: they fit a small terminal, say each piece of news once, and nothing where nobody looks."""

import io

from rich.console import Console

from cdc.demo.board import NEWS_KEPT, Board
from cdc.demo.conductor import State
from cdc.demo.messages import Progress, Read, Recovered
from cdc.demo.screen import LINE_SECONDS, LineScreen, LiveScreen, NoScreen, drawn
from cdc.demo.shop import TABLES


def console(*, width: int = 80, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, highlight=False)


def text_of(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def busy_board() -> Board:
    """Numbers as long as an hour of the demo makes them."""
    board = Board(3600, started_at=0.0)
    board.ready_at, board.now, board.state = 1.0, 1200.0, State.DOOMED
    offsets = dict.fromkeys(TABLES, "8900000000_5001")
    board.hear("writer", Recovered(0.1, dict.fromkeys(TABLES, 0), 0))
    for name in ("reader 1", "reader 2"):
        board.hear(name, Read(dict.fromkeys(TABLES, 9_999_999)))
    board.hear("writer", Progress(offsets, offsets, 8_900_000_048, 999_999))
    for _ in range(NEWS_KEPT):
        board.killed(4_194_304)
        board.hear("writer", Recovered(1.2345, dict.fromkeys(TABLES, 2_500), 64))
    return board


def test_the_picture_fits_a_small_terminal() -> None:
    out = console(width=80)
    out.print(drawn(busy_board()))
    lines = text_of(out).splitlines()
    assert len(lines) == 1 + (1 + len(TABLES)) + 2 + NEWS_KEPT
    assert "…" not in text_of(out)
    assert max(map(len, lines)) <= 80


def test_what_recovery_cut_is_of_the_last_recovery_and_the_sum_of_all() -> None:
    board = busy_board()
    assert [facts.cut for facts in board.tables.values()] == [2_500] * 3
    assert board.cut_rows == NEWS_KEPT * 7_500
    assert board.slowest_recovery_seconds == 1.2345


def test_every_line_is_said_once() -> None:
    out, board = console(), Board(60, started_at=0.0)
    screen = LineScreen(out)
    for number in range(20):
        board.tell(f"news {number}")
        screen.show(board)
        screen.show(board)
    assert [line.split()[-1] for line in text_of(out).splitlines()] == [str(number) for number in range(20)]


def test_the_state_is_a_line_now_and_then() -> None:
    out, board = console(), busy_board()
    screen = LineScreen(out)
    board.news.clear()
    for _ in range(5):
        board.now += LINE_SECONDS
        screen.show(board)
    assert text_of(out).count("999999 transactions committed") == 5


def test_a_line_stays_one_however_narrow_the_console() -> None:
    out, board = console(width=20), Board(60, started_at=0.0)
    board.tell("a long piece of [bold]news[/bold] that is wider than this")
    LineScreen(out).show(board)
    assert text_of(out).splitlines() == ["  0.0 s  a long piece of [bold]news[/bold] that is wider than this"]


def test_a_live_screen_ends_with_the_last_picture() -> None:
    out, board = console(terminal=True), busy_board()
    screen = LiveScreen(out)
    screen.show(board)
    screen.close()
    assert "order_lines" in text_of(out)


def test_nobody_looks() -> None:
    NoScreen().show(busy_board())
    NoScreen().close()
