"""What it costs to find the shapes of a change: 10,000 shapes that are looked up, and 100 and 1,000 that must be asked.

The limit of the first is a table with one such shape, fed the same rows; of the others, the same clauses each on its
own. Processor time is measured: nothing is stored, nothing is waited for.
"""

import random
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import pyarrow as pa

from shapes.routing import Router
from shapes.where.clause import Clause
from shapes.where.types import ColumnType
from tests.bench.measuring import options_parser, prepared_data, progress, scaled
from tests.bench.rows import Row, bounded, compared

TABLE = 16_384
COLUMNS = {"id": ColumnType(20), "tenant": ColumnType(23), "name": ColumnType(25), "amount": ColumnType(1700)}
ROWS = 100_000
"""For each measurement."""
LOOKED_UP_US_MAX = 2.0
"""For a change in batches of 1,000 rows, whatever the number of shapes: as much as all else between socket and disk."""
MILLION = 1_000_000

LOOKED_UP: dict[str, Callable[[int], str]] = {
    "tenant = N": "tenant = {}".format,
    "tenant = N AND amount > 500": "tenant = {} AND amount > 500".format,
    "tenant = N AND amount > M": lambda number: f"tenant = {number} AND amount > {number % 1000}",
}
SHARED = ("tenant = N", "tenant = N AND amount > 500")
"""Those of which nothing, or the same, is left to ask; a rest that is each shape's own is asked for each."""


ASKED: dict[str, Callable[[int], str]] = {
    "amount > N AND name LIKE 'x%'": lambda number: f"amount > {number} AND name LIKE 'x%'",
    "amount > 999 + N": lambda number: f"amount > 999.{number:04}",
    "tenant + 0 = N": "tenant + 0 = {}".format,
    "amount > N OR name = 'xN'": lambda number: f"amount > 999.{number:04} OR name = 'x{number}'",
    "name LIKE '%N%'": "name LIKE '%{}%'".format,
}
"""Clauses of which not all can be looked up. The first wants a sixth of all pairs of a row and a shape, the others few;
the last has nothing that its shapes could be asked together."""


def run(arguments: list[str]) -> list[Row]:
    """Measure."""
    parser = options_parser("routing", "What it costs to find the shapes of a change.")
    parser.add_argument("--shapes", type=int, default=10_000, help="shapes that are looked up (10,000)")
    parser.add_argument("--asked", type=int, nargs="+", default=[100, 1_000], help="shapes that are asked (100 1000)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1_000, 16_000], help="rows of a batch (1000 16000)")
    options = parser.parse_args(arguments)
    return [row for batch_rows in options.batches for row in _of_batches(options, batch_rows)]


def _of_batches(options: Namespace, batch_rows: int) -> Iterator[Row]:
    shapes_count = options.shapes
    batches = _batches(scaled(ROWS, options.scale, batch_rows), batch_rows, shapes_count)
    for name, sql in LOOKED_UP.items():
        label = f"{shapes_count:,} shapes `{name}`, batches of {batch_rows:,}"
        many = _router([sql(number) for number in range(shapes_count)])
        one = _router([sql(0)])
        costs, limits = _rounds(options, label, [(many, batches)], [(one, batches)])
        yield compared(f"{label}, beside one shape", "changes/s", *_rates(costs, limits))
        if name in SHARED:
            yield bounded(f"{label}, cost", "us a change", _micros(costs), value_max=LOOKED_UP_US_MAX)
        else:
            yield Row(f"{label}, cost", statistics.median(_micros(costs)), "us a change")
    few = batches[: max(1, len(batches) // 10)]
    for count, name in product(options.asked, ASKED):
        label = f"{count:,} shapes `{name}`, batches of {batch_rows:,}"
        clauses = [ASKED[name](number) for number in range(count)]
        together = [(_router(clauses), few)]
        costs, limits = _rounds(options, label, together, [(_router([sql]), few) for sql in clauses])
        yield compared(f"{label}, beside each alone", "changes/s", *_rates(costs, limits))
        yield Row(f"{label}, cost", statistics.median(_micros(costs)), "us a change")
        yield Row(f"{label}, cost for each", 1_000 * statistics.median(_micros(costs)) / count, "ns a change and shape")


Run = tuple[Router, Sequence[pa.StructArray]]


def _rounds(
    options: Namespace, label: str, ours: Sequence[Run], limits: Sequence[Run]
) -> tuple[list[float], list[float]]:
    """Seconds a change, in each round."""
    measured: tuple[list[float], list[float]] = ([], [])
    with prepared_data():
        for turn in range(options.rounds):
            progress(f"routing: {label}: round {turn + 1} of {options.rounds}")
            for found, runs in zip(measured, (ours, limits), strict=True):
                found.append(sum(_seconds(router, batches) for router, batches in runs))
    return measured


def _seconds(router: Router, batches: Sequence[pa.StructArray]) -> float:
    start = time.process_time()
    for batch in batches:
        router.match(TABLE, batch)
    return (time.process_time() - start) / sum(map(len, batches))


def _rates(costs: Sequence[float], limits: Sequence[float]) -> tuple[list[float], list[float]]:
    return [1 / cost for cost in costs], [1 / limit for limit in limits]


def _micros(costs: Sequence[float]) -> list[float]:
    return [cost * MILLION for cost in costs]


def _router(clauses: Sequence[str]) -> Router:
    router = Router()
    for shape, sql in enumerate(clauses):
        router.add(shape, TABLE, Clause.of(sql, COLUMNS).tree)
    return router


def _batches(rows_count: int, batch_rows: int, tenants: int) -> list[pa.StructArray]:
    chance = random.Random(1)
    return [_batch(chance, batch_rows, tenants) for _ in range(rows_count // batch_rows)]


def _batch(chance: random.Random, rows_count: int, tenants: int) -> pa.StructArray:
    columns = {
        "id": [str(number) for number in range(rows_count)],
        "tenant": [str(chance.randrange(tenants)) for _ in range(rows_count)],
        "name": [f"{chance.choice('xyz')}{chance.randrange(1000)}" for _ in range(rows_count)],
        "amount": [f"{chance.randrange(1000)}.{chance.randrange(100):02}" for _ in range(rows_count)],
    }
    return pa.StructArray.from_arrays([pa.array(texts, pa.string()) for texts in columns.values()], [*columns])
