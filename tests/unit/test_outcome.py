"""What the demo says at the end: everything that was compared, whether or not there is a lake."""

from pathlib import Path

import orjson
import pytest

from cdc.demo.board import Board
from cdc.demo.outcome import Compared, Proven, facts_of, problem_facts, summary
from cdc.demo.shapes import SHAPES
from cdc.demo.tally import Tally


def proven(parquet: int | None) -> Proven:
    shapes = [Compared(shape.name, 12_345, 12_345, parquet, 54_321, None) for shape in SHAPES]
    return Proven("0/1B22F8", shapes, Tally(1000, 50, 7), 3, 2.34, None if parquet is None else 4)


@pytest.mark.parametrize(("parquet", "no_lake"), [(12_345, None), (None, "without Java")])
def test_everything_that_was_compared_is_said(parquet: int | None, no_lake: str | None) -> None:
    text = "\n".join(summary(proven(parquet), no_lake, None))
    for shape in SHAPES:
        assert shape.name in text
    assert "0/1B22F8" in text
    assert text.count("12,345") == len(SHAPES) * (3 if parquet else 2)
    assert ("no lake: without Java" in text) == (parquet is None)
    assert "shapelog logs" not in text


def test_a_kept_folder_can_be_looked_at() -> None:
    text = "\n".join(summary(proven(12_345), None, Path("kept")))
    assert "shapelog logs kept/data" in text
    assert "shapelog lake show kept/lake" in text
    assert "lake show" not in "\n".join(summary(proven(None), "none", Path("kept")))


def test_facts_are_json() -> None:
    board = Board(30, started_at=10.0, now=52.04, transactions=9, kills=2)
    facts = orjson.loads(orjson.dumps(facts_of(proven(None), "without Java", board, None)))
    assert (facts["is_sound"], facts["seconds"], facts["folder"], facts["transactions"]) == (True, 42.0, None, 1000)
    assert [one["shape"] for one in facts["shapes"]] == [shape.name for shape in SHAPES]
    facts = orjson.loads(orjson.dumps(problem_facts("what happened", board, Path("left"))))
    assert (facts["is_sound"], facts["problem"], facts["folder"], facts["kills"]) == (False, "what happened", "left", 2)
