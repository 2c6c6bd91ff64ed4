"""The demo's screens: they fit a small terminal, say each piece of news once, and nothing where nobody looks."""

import io

from rich.console import Console

from cdc.demo.board import NEWS_KEPT, Board, State
from cdc.demo.screen import LINE_SECONDS, LineScreen, LiveScreen, NoScreen, drawn
from cdc.demo.shapes import SHAPES


def console(*, width: int = 80, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, highlight=False)


def text_of(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def busy_board() -> Board:
    """Numbers as long as an hour of the demo makes them."""
    board = Board(3600, started_at=0.0)
    board.ready_at, board.now, board.state = 1.0, 1200.0, State.CATCHING_UP
    board.console_url, board.lake = "http://127.0.0.1:65535/console", "version 1800, at FF/FFFFFFFF"
    board.transactions, board.rolled_back = 999_999, 99_999
    for facts in board.shapes.values():
        facts.written, facts.read, facts.changes = 999_999, 999_999, 9_999_999
    shapes = [{"name": name, "durable": "1099511627775_5001"} for name in [*board.shapes, "another"]]
    slot = {"unconfirmed_bytes": 1023 * 1024 * 1024}
    board.told({"global_flushed_lsn": "FF/FFFFFFFF", "slot": slot, "shapes": shapes})
    for number in range(NEWS_KEPT):
        board.kills += 1
        board.tell(f"kill {number}: SIGKILL for the server, process 4194304")
    return board


def test_the_picture_fits_a_small_terminal() -> None:
    out = console(width=80)
    out.print(drawn(busy_board()))
    lines = text_of(out).splitlines()
    assert len(lines) == 2 + (1 + len(SHAPES)) + 3 + NEWS_KEPT
    assert "…" not in text_of(out)
    assert max(map(len, lines)) <= 80


def test_the_picture_is_there_before_anything_is_known() -> None:
    out = console(width=80)
    out.print(drawn(Board(30, started_at=0.0)))
    assert "is being set up" in text_of(out)
    assert "30 s left" in text_of(out)


def test_what_the_server_says_is_shown() -> None:
    board = busy_board()
    assert {facts.durable for facts in board.shapes.values()} == {"1099511627775_5001"}
    assert (board.confirmed, board.lag_bytes) == ("FF/FFFFFFFF", 1023 * 1024 * 1024)


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
