"""The shop of the demo: an endless stream of made-up transactions, as SQL. Pure: chance is passed in.

Customers sign up, order, pay, get their goods or cancel; clerks renumber lines (a change of keys); now and then a
wholesaler orders, or cancels, thousands of lines at once; and some transactions are rolled back.

Invariants:
    a statement touches exactly the rows that it says: `rows` is known before it runs
    what a rolled back transaction did is not remembered; the numbers that it used are not used again
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, LiteralString

from cdc.demo.tables import CUSTOMERS_AT_FIRST, Statement

LARGE_EVERY: Final = 80
"""Transactions from one wholesaler to the next: a few seconds of them."""

LARGE_LINES: Final = (2_000, 4_000)
"""Lines of a wholesaler's order, at least and at most: a transaction that is sent in many messages."""

REMEMBERED: Final = 400
"""Orders that may still change. Older ones are left alone, so that the shop's memory is bounded."""

_CITIES: Final = ("Antwerp", "Bergen", "Coimbra", "Dresden", "Espoo", "Ghent", "Haarlem", "Innsbruck", "Porto")
_PRODUCTS: Final = ("espresso cup", "moka pot", "hand grinder", "paper filters", "kettle", "scale", "milk jug")
_RENUMBERED: Final = 100_000
"""Added to a line's number: no order has so many lines, so no two lines meet."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Statements that are committed together, or taken back together."""

    statements: Sequence[Statement]
    is_large: bool = False
    is_rolled_back: bool = False


@dataclass(slots=True)
class Order:
    """What the shop remembers of an order."""

    id: int
    lines: list[int] = field(default_factory=list)


class Shop:
    """Says what happens next."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._customers = CUSTOMERS_AT_FIRST
        self._last_id = 1000
        self._placed: deque[Order] = deque(maxlen=REMEMBERED)
        self._paid: deque[Order] = deque(maxlen=REMEMBERED)
        self._wholesale: deque[Order] = deque(maxlen=REMEMBERED)
        self._count = 0

    def next(self) -> Transaction:
        """The next transaction; the shop goes on as if it were done."""
        self._count += 1
        if self._count % LARGE_EVERY == 0:
            return self._large()
        deeds: dict[Callable[[], Transaction], int] = {
            self._order: 45,
            self._pay: 22 if self._placed else 0,
            self._ship: 14 if self._paid else 0,
            self._sign_up: 8,
            self._cancel: 5 if self._placed else 0,
            self._renumber: 4 if self._placed else 0,
            self._change_of_mind: 4,
        }
        return self._chance.choices(list(deeds), list(deeds.values()))[0]()

    def _sign_up(self) -> Transaction:
        self._customers += 1
        values = (self._customers, f"Customer {self._customers}", self._chance.choice(_CITIES))
        sql: LiteralString = "INSERT INTO customers VALUES (%s, %s, %s, now())"
        return Transaction([Statement("customers", 1, 0, 0, sql, values)])

    def _order(self) -> Transaction:
        order, statements = self._new_order(self._chance.randint(1, 6))
        self._placed.append(order)
        return Transaction(statements)

    def _pay(self) -> Transaction:
        order = self._taken(self._placed)
        self._paid.append(order)
        amount = f"{self._chance.randint(500, 90_000) / 100:.2f}"
        return Transaction(
            [
                Statement(
                    "payments", 1, 0, 0, "INSERT INTO payments VALUES (%s, %s, %s)", (self._id(), order.id, amount)
                ),
                _status(order, "paid"),
            ]
        )

    def _ship(self) -> Transaction:
        return Transaction([_status(self._taken(self._paid), "shipped")])

    def _cancel(self) -> Transaction:
        return Transaction(_deletes(self._taken(self._placed)))

    def _renumber(self) -> Transaction:
        """A line gets a new key: for those who follow, the old row goes and a new one comes."""
        order = self._chance.choice(self._placed)
        line = order.lines.pop(0)
        order.lines.append(line + _RENUMBERED)
        sql: LiteralString = "UPDATE order_lines SET line = %s WHERE order_id = %s AND line = %s"
        return Transaction([Statement("order_lines", 1, 0, 1, sql, (line + _RENUMBERED, order.id, line))])

    def _change_of_mind(self) -> Transaction:
        """An order that never was."""
        return Transaction(self._new_order(self._chance.randint(1, 6))[1], is_rolled_back=True)

    def _large(self) -> Transaction:
        """A wholesaler orders, has nearly ordered, or cancels."""
        if self._wholesale and self._chance.random() < 1 / 3:
            return Transaction(_deletes(self._wholesale.popleft()), is_large=True)
        order, statements = self._new_order(self._chance.randint(*LARGE_LINES))
        is_rolled_back = self._chance.random() < 1 / 5
        if not is_rolled_back:
            self._wholesale.append(order)
        return Transaction(statements, is_large=True, is_rolled_back=is_rolled_back)

    def _new_order(self, count: int) -> tuple[Order, list[Statement]]:
        order = Order(self._id(), list(range(1, count + 1)))
        total = f"{self._chance.randint(500, 90_000) / 100:.2f}"
        customer = self._chance.randint(1, self._customers)
        product, quantity = self._chance.choice(_PRODUCTS), self._chance.randint(1, 9)
        one: LiteralString = "INSERT INTO orders VALUES (%s, %s, 'placed', %s)"
        many: LiteralString = "INSERT INTO order_lines SELECT %s, n, %s, %s + n %% 3 FROM generate_series(1, %s) n"
        return order, [
            Statement("orders", 1, 0, 0, one, (order.id, customer, total)),
            Statement("order_lines", count, 0, 0, many, (order.id, product, quantity, count)),
        ]

    def _taken(self, orders: deque[Order]) -> Order:
        index = self._chance.randrange(len(orders))
        order = orders[index]
        del orders[index]
        return order

    def _id(self) -> int:
        self._last_id += 1
        return self._last_id


def _status(order: Order, status: str) -> Statement:
    return Statement("orders", 0, 1, 0, "UPDATE orders SET status = %s WHERE id = %s", (status, order.id))


def _deletes(order: Order) -> list[Statement]:
    lines = len(order.lines)
    return [
        Statement("order_lines", 0, 0, lines, "DELETE FROM order_lines WHERE order_id = %s", (order.id,)),
        Statement("orders", 0, 0, 1, "DELETE FROM orders WHERE id = %s", (order.id,)),
    ]
