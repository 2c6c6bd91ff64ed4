"""The shop of the demo: an endless stream of made-up transactions over three tables. Pure.

It stands in for Postgres: whoever lost its place gets the same transactions again, at the same offsets. They come in
rounds: `SMALL` small ones (customers sign up, order, get their goods or cancel), then the order of a wholesaler, which
is large enough to be sent in many fragments.

Invariants:
    a round is a function of its number alone: any process makes the same one, without those before it
    a transaction's `tx` grows with its number, and its end lies below the next one's `tx`
    a row is inserted before it is updated or deleted; an order changes at most once, in the round after its own
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from storage.offset import LogOffset
from storage.rows import TX, Integers, Kind, row_schema

SEED: Final = 2026
"""Chosen once: every run of the demo tells the same story."""

TABLES: Final = {
    "customers": ("id", "name", "email", "city", "since"),
    "orders": ("id", "customer_id", "status", "total", "placed_at"),
    "order_lines": ("order_id", "line", "product", "quantity", "price"),
}
KEYS: Final = {"customers": ("id",), "orders": ("id",), "order_lines": ("order_id", "line")}

SMALL: Final = 64
"""Small transactions in a round: about a third of a second of them."""

ROUND: Final = SMALL + 1
"""Transactions in a round."""

SIGNUPS: Final = 8
"""New customers at the start of each round, so that the orders of any round have somebody to come from."""

LARGE_LINES: Final = (1_500, 2_500)
"""Lines of a wholesaler's order: rows enough to be flushed several times before the commit comes."""

TX_FIRST: Final = 26_800_000
TX_STEP: Final = 8_192
"""WAL that a transaction takes; more than any of ours would, so that offsets need no counting."""

COMMIT_SIZE: Final = 48
"""Bytes of a commit record: its end is what is confirmed."""

_FIRST_NAMES: Final = ("Ada", "Bela", "Chidi", "Dana", "Edda", "Farid", "Greta", "Hugo", "Ines", "Joao", "Kai", "Lena")
_LAST_NAMES: Final = ("Abel", "Bauer", "Costa", "Duarte", "Eriksen", "Fontaine", "Greco", "Horvat", "Ito", "Jensen")
_CITIES: Final = ("Antwerp", "Bergen", "Coimbra", "Dresden", "Espoo", "Ghent", "Haarlem", "Innsbruck", "Lyon", "Porto")
_PRODUCTS: Final = (
    ("espresso cup", 690),
    ("moka pot", 2_990),
    ("hand grinder", 8_450),
    ("paper filters", 420),
    ("beans, 1 kg", 2_180),
    ("kettle", 5_900),
    ("scale", 3_250),
    ("milk jug", 1_875),
)
_OPENED: Final = np.datetime64("2026-03-02T08:00:00")
_SECONDS_APART: Final = 7


class Deed(IntEnum):
    """What a small transaction does."""

    SIGN_UP = 0
    ORDER = 1
    SHIP = 2
    CANCEL = 3


def tx_of(number: int) -> int:
    """The start of a transaction's commit record, by which its rows are known; they are numbered from 0."""
    return TX_FIRST + number * TX_STEP


def transaction_at(tx: int) -> int:
    """The number of the transaction that a row belongs to."""
    return (tx - TX_FIRST) // TX_STEP


def confirmed_by(number: int) -> int:
    """G when everything up to this transaction is durable."""
    return tx_of(number) + COMMIT_SIZE


def committed_at(number: int) -> int:
    """When it was committed by the shop's clock, in microseconds since 1970."""
    return int((_OPENED + np.timedelta64(number * _SECONDS_APART, "s")).astype("datetime64[us]").astype(np.int64))


def first_above(confirmed: int) -> int:
    """The transaction to go on with when everything below an LSN was confirmed."""
    return max(0, -(-(confirmed - TX_FIRST) // TX_STEP))


@dataclass(frozen=True, slots=True)
class Round:
    """The rows of a round, table by table, in the order of their offsets."""

    number: int
    tables: dict[str, pa.RecordBatch]
    changes: Sequence[int]
    """How many rows each transaction has, in all tables together."""

    def end_of(self, transaction: int) -> LogOffset:
        """The aligned offset of one of the round's transactions."""
        return LogOffset.aligned(tx_of(transaction), self.changes[transaction % ROUND])

    def rows_below(self, table: str, transaction: int) -> int:
        """How many rows a table has of the round's transactions below this one."""
        tx = self.tables[table].column(TX).to_numpy()
        return int(np.searchsorted(tx, tx_of(transaction)))


@functools.lru_cache(maxsize=8)  # as many as are looked at together: by the writer, and by checks of three tables
def round_of(number: int) -> Round:
    """Make a round."""
    transactions = [*_small_transactions(number), _order(number, SMALL)]
    columns: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
    for index, changes in enumerate(transactions):
        tx = tx_of(number * ROUND + index)
        for op, (table, kind, values) in enumerate(changes):
            columns[table].append((tx, 2 * op, kind, values))
    tables = {table: _batch(table, rows) for table, rows in columns.items()}
    return Round(number, tables, [len(changes) for changes in transactions])


_Change = tuple[str, Kind, tuple[str | None, ...]]


def _small_transactions(number: int) -> Iterator[list[_Change]]:
    earlier = [] if number == 0 else np.flatnonzero(_deeds(number - 1) == Deed.ORDER).tolist()
    np.random.default_rng([SEED, number, 1]).shuffle(earlier)
    for slot, deed in enumerate(_deeds(number).tolist()):
        if deed == Deed.ORDER:
            yield _order(number, slot)
        elif deed == Deed.SIGN_UP or not earlier:  # with nothing left to ship, one more customer came
            yield [_sign_up(number, slot)]
        else:
            order, *lines = _order(number - 1, earlier.pop())
            yield [_shipped(order)] if deed == Deed.SHIP else [*map(_deleted, lines), _deleted(order)]


@functools.lru_cache(maxsize=16)
def _deeds(number: int) -> Integers:
    """What the small transactions of a round do; without looking at other rounds, or there would be no end."""
    deeds: Integers = np.random.default_rng([SEED, number, 0]).choice(len(Deed), SMALL, p=[0.05, 0.55, 0.32, 0.08])
    deeds[:SIGNUPS] = Deed.SIGN_UP
    return deeds


def _sign_up(number: int, slot: int) -> _Change:
    identity = number * SMALL + slot + 1
    first, last = _FIRST_NAMES[identity % 12], _LAST_NAMES[identity // 12 % 10]
    email = f"{first}.{last}{identity}@example.com".lower()
    values = (str(identity), f"{first} {last}", email, _CITIES[identity // 3 % 10], _when(number, slot))
    return "customers", Kind.INSERT, values


def _order(number: int, slot: int) -> list[_Change]:
    """An order and its lines; the same again for those who change it later."""
    chance = np.random.default_rng([SEED, number, 2, slot])
    # Customers of this round signed up before its first order: they are its first transactions.
    signed_up_in = int(chance.integers(max(0, number - 50), number + 1))
    customer = signed_up_in * SMALL + int(chance.integers(SIGNUPS)) + 1
    count = int(chance.integers(1, 6)) if slot < SMALL else int(chance.integers(*LARGE_LINES))
    products = chance.integers(len(_PRODUCTS), size=count).tolist()
    quantities = chance.integers(1, 4 if slot < SMALL else 400, size=count).tolist()
    identity = str(10_000 + number * ROUND + slot)
    lines: list[_Change] = []
    total = 0
    for line, (product, quantity) in enumerate(zip(products, quantities, strict=True), start=1):
        name, price = _PRODUCTS[product]
        total += quantity * price
        values = (identity, str(line), name, str(quantity), _money(price))
        lines.append(("order_lines", Kind.INSERT, values))
    order = (identity, str(customer), "placed", _money(total), _when(number, slot))
    return [("orders", Kind.INSERT, order), *lines]


def _shipped(order: _Change) -> _Change:
    table, _, (identity, customer, _, total, placed_at) = order
    return table, Kind.UPDATE, (identity, customer, "shipped", total, placed_at)


def _deleted(row: _Change) -> _Change:
    """Of a deleted row Postgres sends the key."""
    table, _, values = row
    keys = len(KEYS[table])
    return table, Kind.DELETE, values[:keys] + (None,) * (len(values) - keys)


def _when(number: int, slot: int) -> str:
    moment = _OPENED + np.timedelta64((number * ROUND + slot) * _SECONDS_APART, "s")
    return f"{str(moment).replace('T', ' ')}+00"


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


def _batch(table: str, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    names = TABLES[table]
    schema = row_schema(names)
    tx, op, kind, values = zip(*rows, strict=True)
    by_column = zip(*values, strict=True)
    new = pa.StructArray.from_arrays([pa.array(column, pa.string()) for column in by_column], names)
    # A bit for each column that a delete comes without: all but the key, which is in front.
    unsent = bytes([(1 << len(names)) - (1 << len(KEYS[table]))])
    absent = [unsent if one is Kind.DELETE else None for one in kind]
    numbers = [pa.array(tx, pa.uint64()), pa.array(op, pa.uint64()), pa.array(kind, pa.uint8())]
    return pa.RecordBatch.from_arrays([*numbers, pa.array(absent, pa.binary()), new], schema=schema)
