"""The runner of the benchmarks, and those of storage at a size that takes a second, so that none of them rots."""

from pathlib import Path

import orjson
import pytest

from tests.bench import __main__ as runner
from tests.bench.measuring import best
from tests.bench.rows import Row, bounded, compared

TINY = {
    "append": ["--logs", "1", "7", "--batches", "20", "1000", "--tick-logs", "9"],
    "read": ["--journal-logs", "5"],
    "memory": ["--logs", "3"],
    "routing": ["--shapes", "5", "--asked", "2", "--batches", "20"],
}


def trivial(arguments: list[str]) -> list[Row]:
    assert arguments == ["--speed", "3"]
    return [compared("speed", "km/h", [3.0, 1.0, 2.0], [4.0, 4.0, 4.0], ratio_min=0.7), Row("length", 12_345.6, "m")]


def keep(tmp_path: Path) -> list[str]:
    return ["--out", str(tmp_path / "out")]


def kept(tmp_path: Path, name: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = orjson.loads((tmp_path / "out" / f"{name}.json").read_bytes())
    assert all(list(row) == ["measure", "value", "unit", "baseline", "ratio", "target", "met"] for row in rows)
    context = orjson.loads((tmp_path / "out" / f"{name}.context.json").read_bytes())
    assert context["benchmark"] == name
    assert context["machine"]["cores"] > 0
    return rows


def test_rows_are_shown_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = runner.main(["trivial", "--speed", "3", *keep(tmp_path)], {"trivial": trivial, "other": trivial})
    shown = capsys.readouterr().out
    assert status == 0
    assert "12,346" in shown
    assert "0 targets met, 1 missed" in shown
    speed, length = kept(tmp_path, "trivial")
    assert speed == {
        "measure": "speed",
        "value": 2.0,
        "unit": "km/h",
        "baseline": 4.0,
        "ratio": 0.5,
        "target": "ratio >= 0.7",
        "met": False,
    }
    assert length["met"] is None
    assert not (tmp_path / "out" / "other.json").exists()


def test_json_is_all_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner.main(["--json", "--speed", "3", *keep(tmp_path)], {"one": trivial, "two": trivial})
    printed = orjson.loads(capsys.readouterr().out)
    assert printed == kept(tmp_path, "one") + kept(tmp_path, "two")


def test_a_missed_target_fails_only_where_asked(tmp_path: Path) -> None:
    assert runner.main(["trivial", "--strict", "--speed", "3", *keep(tmp_path)], {"trivial": trivial}) == 1


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        runner.main(["trival"], {"trivial": trivial})
    assert refused.value.code == 2
    assert "there are: trivial" in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["append", "--help"]) == 0
    shown = capsys.readouterr().out
    for taught in ("examples:", "--json", "--scale", "--batches", *TINY):
        assert taught in shown


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    # The medians alone would give 20 / 40: the machine was slow in the first round for both.
    row = compared("", "", [2.0, 20.0, 40.0], [4.0, 40.0, 50.0], ratio_min=0.5)
    assert (row.value, row.baseline, row.ratio, row.met) == (20.0, 40.0, 0.5, True)
    row = compared("", "", [10.0, 20.0, 30.0], [10.0, 80.0, 40.0])
    assert (row.value, row.baseline, row.ratio, row.met) == (20.0, 40.0, 0.75, None)


def test_a_limit_that_was_beaten_is_no_limit() -> None:
    row = compared("", "", [33.0], [10.0], ratio_min=0.7)
    assert (row.ratio, row.met) == (3.3, False)
    assert "disturbed" in row.target
    assert compared("", "", [10.5], [10.0], ratio_min=0.7).met


def test_a_limit_is_the_best_of_its_attempts() -> None:
    attempts = iter([0.6, 0.1, 0.2])
    assert best(lambda: next(attempts)) == 0.1


def test_a_bound_is_met_up_to_the_bound() -> None:
    assert bounded("", "s", [9.0, 4.0, 1.0], value_max=4).met
    assert not bounded("", "s", [9.0, 4.1, 1.0], value_max=4).met


def test_benchmarks_are_found() -> None:
    assert set(TINY) <= set(runner.discover())
    assert not {"rows", "measuring", "__main__"} & set(runner.discover())


@pytest.mark.parametrize("name", TINY)
def test_a_benchmark_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--scale", "0.002", "--rounds", "1", "--folder", str(tmp_path / "data")]
    assert runner.main([name, "--json", *keep(tmp_path), *size, *TINY[name]]) == 0
    rows = kept(tmp_path, name)
    assert rows
    for row in rows:
        assert float(str(row["value"])) > 0, row
        assert (row["ratio"] is None) == (row["baseline"] is None), row
        assert (row["met"] is None) == (not row["target"]), row
    assert list((tmp_path / "data").glob("*")) == [], "the data is removed"
    assert f"{name}: " in capsys.readouterr().err, "it says what it does while it works"
