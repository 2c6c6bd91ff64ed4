"""`python -m tests.bench [NAME [ARGUMENT..]]`: run one benchmark with its arguments, or all of them with none.

A benchmark is a module of this package with `run(arguments) -> list[Row]`. Results go to build/bench/NAME.json.
"""

import importlib
import json
import pkgutil
import sys
from dataclasses import asdict
from pathlib import Path

import tests.bench
from tests.bench.row import Row


def benchmarks() -> list[str]:
    names = (module.name for module in pkgutil.iter_modules(tests.bench.__path__) if not module.name.startswith("_"))
    return [name for name in names if hasattr(importlib.import_module(f"tests.bench.{name}"), "run")]


def report(name: str, rows: list[Row]) -> None:
    width = max((len(row.measure) for row in rows), default=0)
    print(name)
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:5.2f} of {row.baseline}"
        target = "" if row.met is None else f"target {row.target}: {'met' if row.met else 'MISSED'}"
        print(f"  {row.measure:{width}}  {row.value:12,.4g} {row.unit:14} {ratio:24} {target}".rstrip())
    folder = Path("build/bench")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def main(arguments: list[str]) -> None:
    known = benchmarks()
    if arguments and arguments[0] not in known:
        sys.exit(f"no benchmark {arguments[0]!r}; there are: {', '.join(known)}")
    for name in arguments[:1] or known:
        report(name, importlib.import_module(f"tests.bench.{name}").run(arguments[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
