"""The runner of the benchmarks: `python -m tests.bench [NAME..] [--json] [options]`, or `make bench ARGS=".."`.

Every module of this folder with a function `run(arguments: list[str]) -> list[Row]` is a benchmark. Results are shown
as a table and kept as build/bench/NAME.json. Absolute numbers are those of one machine; compare ratios.
"""

import argparse
import contextlib
import importlib
import os
import pkgutil
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from tests.bench.measuring import OUT, progress
from tests.bench.rows import Row

Benchmark = Callable[[list[str]], list[Row]]

TABLE_COLUMNS = 140

EPILOG = """\
examples:
  python -m tests.bench                          everything, at full size (takes a while)
  python -m tests.bench --scale 0.1              everything, a tenth of it
  python -m tests.bench append --logs 1 --rounds 5
  python -m tests.bench read --json              the rows as JSON instead of a table
  python -m tests.bench append --help            the options of one benchmark

Names come first, options after them. An option that not every benchmark has needs the name of one that has it.
A ratio is the share of the limit that was reached; the limit is measured in the same round, on the same disk.
"""


def main(arguments: Sequence[str], found: Mapping[str, Benchmark] | None = None) -> int:
    """Run what is asked for. The exit status is 2 for a name that is unknown, and 1 for a target missed if strict."""
    benchmarks = discover() if found is None else found
    names, rest = _split(arguments)
    parser = _parser(benchmarks)
    own, passed = parser.parse_known_args(rest)
    if unknown := [name for name in names if name not in benchmarks]:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(benchmarks)}")
    if own.help:
        parser.print_help()
        for name in names:
            print()
            with contextlib.suppress(SystemExit):
                benchmarks[name](["--help"])
        return 0
    rows: list[Row] = []
    for name in names or benchmarks:
        result = benchmarks[name](passed)
        rows += result
        progress("")
        _keep(own.out, name, passed, result)
        if not own.json:
            _console().print(_table(name, result))
    if own.json:
        sys.stdout.write(_encoded([asdict(row) for row in rows]))
    missed = sum(row.met is False for row in rows)
    if not own.json:
        print(f"{sum(row.met is True for row in rows)} targets met, {missed} missed; results are in {own.out}")
    return 1 if own.strict and missed else 0


def discover() -> dict[str, Benchmark]:
    """The benchmarks of this folder by name."""
    found: dict[str, Benchmark] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name != "__main__":
            run = getattr(importlib.import_module(f"tests.bench.{module.name}"), "run", None)
            if run is not None:
                found[module.name] = run
    return found


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names up to the first option: behind it, a word may be the value of an option that only a benchmark knows."""
    first = next((index for index, one in enumerate(arguments) if one.startswith("-")), len(arguments))
    return list(arguments[:first]), list(arguments[first:])


def _parser(benchmarks: Mapping[str, Benchmark]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        usage="python -m tests.bench [NAME..] [--json] [options of the benchmarks]",
        description=f"Benchmarks: {', '.join(benchmarks)}. Without a name, all of them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("-h", "--help", action="store_true", help="this text, and the options of the benchmarks named")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON; no table")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for NAME.json, a list of rows (build/bench)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    return parser


def _keep(out: Path, name: str, arguments: Sequence[str], rows: Sequence[Row]) -> None:
    """The rows as a plain list, for whoever compares; beside it, what they were measured with."""
    out.mkdir(parents=True, exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "memory_pool": pa.default_memory_pool().backend_name,
    }
    (out / f"{name}.json").write_text(_encoded([asdict(row) for row in rows]), "utf-8")
    context = {"benchmark": name, "arguments": arguments, "machine": machine}
    (out / f"{name}.context.json").write_text(_encoded(context), "utf-8")


def _encoded(content: object) -> str:
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _table(name: str, rows: Sequence[Row]) -> Table:
    table = Table(title=name, title_justify="left")
    table.add_column("measure", overflow="fold")
    for heading in ("value", "limit", "ratio"):
        table.add_column(heading, justify="right")
    for heading in ("unit", "target", "met"):
        table.add_column(heading)
    verdicts = {None: "", True: "[green]yes[/]", False: "[bold red]NO[/]"}
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(
            row.measure, _number(row.value), _number(row.baseline), ratio, row.unit, row.target, verdicts[row.met]
        )
    return table


def _console() -> Console:
    """A file or a pipe has no width; the table should not be folded for it."""
    return Console() if sys.stdout.isatty() else Console(width=TABLE_COLUMNS)


def _number(value: float | None) -> str:
    """Three digits say enough of a measurement; a count below a thousand is shown whole."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
