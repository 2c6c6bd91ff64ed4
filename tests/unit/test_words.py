"""What a status says in words: it names the holder, its transaction, for how long, and what frees it."""

import pytest

from cdc.source.lsn import format_lsn
from cdc.status.words import cost_words, hold_words, server_fault_words
from cdc.wording import plain_sql, size_words, span_words
from flush_tracker.explanation import Explanation, Hold, Holder, PendingTransaction
from flush_tracker.stream import Position
from storage.offset import LogOffset

G, SEEN = Position(1000, 0), Position(5000, 0)
SLOT = {"exists": True, "loss": None, "retained_bytes": 1 << 20, "safe_wal_bytes": None, "seconds_left": None}


def words(hold: Hold, holder: Holder | None = None, *, open_tx: int | None = None, pending: int = 1) -> str:
    return hold_words(Explanation(G, SEEN, hold, holder, open_tx, pending), {7: "orders"}.__getitem__)


def test_nothing() -> None:
    assert "nothing holds G" in words(Hold.NOTHING)
    assert format_lsn(1000) in words(Hold.NOTHING)


def test_who_did_not_say_where_postgres_is_learns_how() -> None:
    assert server_fault_words("postgresql://somewhere", "it is away") == "it is away"
    told = server_fault_words("", "no socket")
    assert told.startswith("no socket")
    assert all(name in told for name in ("--database-url", "SHAPELOG_DATABASE_URL", "DATABASE_URL"))


def test_an_open_transaction() -> None:
    assert format_lsn(4321) in words(Hold.OPEN_TRANSACTION, open_tx=4321)


@pytest.mark.parametrize(("count", "others"), [(1, False), (3, True)])
def test_rows_of_a_shape(count: int, others: bool) -> None:
    first = PendingTransaction(LogOffset(2000, 3), 0)
    said = words(Hold.ROWS, Holder(7, first, 0, 125.0, 12, 3 << 20), pending=count)
    for part in ("orders", format_lsn(2000), "2.1 minutes", "12 transactions", "3.0 MB", "a flush of the shape"):
        assert part in said
    assert ("2 other shapes" in said) == others


def test_a_birth() -> None:
    said = words(Hold.JOINING, Holder(7, None, 0, 1.5, 0, None))
    assert "orders is being born, for 1.5 s" in said


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 bytes"), (1023, "1,023 bytes"), (1024, "1.0 kB"), (5 << 30, "5.0 GB")]
)
def test_sizes(count: int, said: str) -> None:
    assert size_words(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0.0 s"), (119, "119.0 s"), (120, "2.0 minutes"), (86_400, "24.0 hours")]
)
def test_spans(seconds: float, said: str) -> None:
    assert span_words(seconds) == said


def test_what_a_slot_costs() -> None:
    assert cost_words({"exists": False}).startswith("there is no such slot")
    assert cost_words(SLOT | {"loss": "gone"}).startswith("lost: gone; `shapelog recover`")
    assert "no limit" in cost_words(SLOT)
    bounded = SLOT | {"safe_wal_bytes": 1 << 30}
    assert cost_words(bounded) == "keeps 1.0 MB of WAL; lost after 1.0 GB more"
    assert "in 2.0 hours at 1.0 MB/s" in cost_words(bounded | {"seconds_left": 7200, "wal_bytes_per_second": 1 << 20})


def test_how_fast_a_disk_without_a_limit_fills() -> None:
    said = cost_words(SLOT | {"wal_bytes_per_second": float(1 << 20)})
    assert said.endswith("so it can fill its disk: WAL grows by 3.5 GB an hour")


PLAIN = [
    ("""("status" OPERATOR(pg_catalog.=) 'placed'::pg_catalog."text")""", "(status = 'placed'::text)"),
    ("""("a" OPERATOR(pg_catalog.~~) 'it''s "pg_catalog." x')""", """(a ~~ 'it''s "pg_catalog." x')"""),
    ('("Of Mine" IS NULL)', '("Of Mine" IS NULL)'),
]


@pytest.mark.parametrize(("sql", "plain"), PLAIN)
def test_a_condition_is_shown_as_people_write_it(sql: str, plain: str) -> None:
    assert plain_sql(sql) == plain
