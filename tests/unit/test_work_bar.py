"""What is said of long work: on a terminal, in a file, and of short work."""

import io

import pytest
from rich.console import Console

from cdc.commands.work_bar import LINE_SECONDS, WorkBar, words_of
from storage.lake.work_progress import CountsParam, Share


class Hands:
    """A clock that is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_words_say_what_is_left() -> None:
    assert words_of(Share(10, 40, 2_500_000, 12), 5.0) == "10 of 40 pieces, 2,500,000 rows, 12 files, about 15 s left"


def shown(bar: WorkBar) -> list[str]:
    return [] if bar._bar is None else [task.description for task in bar._bar[0].tasks]


def test_a_terminal_has_a_bar_while_long_work_lasts_and_no_longer() -> None:
    out, clock = io.StringIO(), Hands()
    bar = WorkBar(Console(file=out, force_terminal=True, width=120), clock)
    bar(Share(0, 4))
    bar(Share(1, 4, 10, 1))
    assert not out.getvalue(), "it began just now"
    clock.now += 2
    bar(Share(2, 4, 20, 2))
    assert shown(bar) == ["2 of 4 pieces, 20 rows, 2 files, about 2 s left"]
    bar(Share(4, 4, 40, 4))
    assert shown(bar) == []
    seen = len(out.getvalue())
    assert "2 of 4 pieces" in out.getvalue()
    bar(Share(0, 2))
    bar(Share(2, 2))
    assert len(out.getvalue()) == seen


def test_a_file_has_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    out, clock = io.StringIO(), Hands()
    bar = WorkBar(Console(file=out), clock)
    bar(Share(0, 40))
    for done in range(1, 40):
        clock.now += LINE_SECONDS / 10
        bar(Share(done, 40, done, done))
    bar(Share(40, 40))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["10", "20", "30"]
    assert not out.getvalue()


def test_workers_add_and_only_the_driver_hears() -> None:
    heard: list[tuple[int, int, int]] = []
    param = CountsParam(heard.append)
    assert param.addInPlace((1, 10, 2), (1, 5, 0)) == (2, 15, 2)
    make, arguments = param.__reduce__()
    assert make(*arguments).addInPlace(param.zero((9, 9, 9)), (1, 1, 1)) == (1, 1, 1)
    assert heard == [(2, 15, 2)]
