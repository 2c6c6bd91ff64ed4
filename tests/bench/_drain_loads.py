"""The four loads of the drain benchmark: what a walsender has to send, in four typical forms."""

from dataclasses import dataclass
from typing import LiteralString

import psycopg

PUBLICATION = "drained"

_ORDERS: LiteralString = """
    CREATE TABLE orders (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer uuid NOT NULL, quantity int, state smallint,
        price numeric(12, 2), contact text, address text, remark text, ordered timestamptz, details jsonb);
    CREATE PROCEDURE fill_orders(transactions int, size int) LANGUAGE plpgsql AS $$
    BEGIN
        FOR number IN 1..transactions LOOP
            INSERT INTO orders (customer, quantity, state, price, contact, address, remark, ordered, details)
            SELECT md5('c' || n)::uuid, n % 500, n % 5, (n % 90000) / 100.0,
                   'person ' || left(md5('p' || n), 4 + n % 18), 'mail' || n || '@host' || n % 70 || '.example',
                   'remark: ' || left(md5('r' || n) || md5('s' || n), 40 + n % 24),
                   timestamptz '2025-06-01' + n * interval '2.1 seconds',
                   jsonb_build_object('article', 'A' || n % 7000, 'weight', n * 0.25, 'gift', n % 3 = 0,
                                      'labels', jsonb_build_array('x', 'y', n % 11), 'note', left(md5('n' || n), 18))
            FROM generate_series((number - 1) * size + 1, number * size) n;
            COMMIT;
        END LOOP;
    END $$;
"""

_ACCOUNTS: LiteralString = """
    CREATE TABLE accounts (
        id int PRIMARY KEY, branch int NOT NULL, balance bigint NOT NULL, changed timestamptz, filler text);
    INSERT INTO accounts SELECT n, n % 90, 0, now(), 'an account like any other, ' || md5(n::text)
    FROM generate_series(1, 50000) n;
    CREATE PROCEDURE move_money(transactions int) LANGUAGE plpgsql AS $$
    BEGIN
        FOR number IN 1..transactions LOOP
            UPDATE accounts SET balance = balance + number % 1000, changed = clock_timestamp()
            WHERE id = number::bigint * 7919 % 50000 + 1;
            COMMIT;
        END LOOP;
    END $$;
"""

_SHOP: LiteralString = """
    CREATE TABLE points (id bigint PRIMARY KEY, x int, label text, seen timestamptz);
    CREATE TABLE articles (id bigint PRIMARY KEY, maker uuid, title text, score float8, active bool, facts jsonb);
    CREATE TABLE settings (id bigint PRIMARY KEY, name text, value numeric, uses int, note text);
    ALTER TABLE settings REPLICA IDENTITY FULL;
    CREATE TABLE readings (id bigint PRIMARY KEY, a int, b int, c int, d bigint, e bigint, taken timestamptz, f text);
    CREATE TABLE papers (id bigint PRIMARY KEY, title text, body text, edition int);
    ALTER TABLE papers ALTER body SET STORAGE EXTERNAL;
    CREATE PROCEDURE fill_shop(first bigint, last bigint, body text) LANGUAGE sql AS $$
        INSERT INTO points SELECT n, n, 'point ' || n, now() FROM generate_series(first, last) n;
        INSERT INTO articles SELECT n, md5(n::text)::uuid, 'article number ' || n, n * 0.5, n % 2 = 0,
            jsonb_build_object('n', n, 'mark', left(md5(n::text), 12)) FROM generate_series(first, last) n;
        INSERT INTO settings SELECT n, 'setting ' || n, n * 1.5, n % 100, 'note ' || md5(n::text)
            FROM generate_series(first, last) n;
        INSERT INTO readings SELECT n, n, n + 1, NULL, n * 1000, n * 7, now(), 'r' || n
            FROM generate_series(first, last) n;
        INSERT INTO papers SELECT n, 'paper ' || n, body || n, 1 FROM generate_series(first, last) n;
    $$;
    CREATE PROCEDURE live_in_shop(transactions int) LANGUAGE plpgsql AS $$
    DECLARE old bigint;
    BEGIN
        FOR number IN 1..transactions LOOP
            CALL fill_shop(100000 + 2 * number, 100001 + 2 * number, 'a short body ');
            old := 5001 + number::bigint * 7919 % 5000;
            UPDATE points SET x = x + 1 WHERE id = old;
            UPDATE articles SET score = score + 1, title = 'title ' || number WHERE id = old;
            UPDATE settings SET uses = uses + 1 WHERE id = old;
            UPDATE readings SET c = number, taken = clock_timestamp() WHERE id = old;
            UPDATE papers SET edition = edition + 1 WHERE id = old;
            DELETE FROM points WHERE id = 100000 + 2 * number;
            DELETE FROM articles WHERE id = 100000 + 2 * number;
            DELETE FROM settings WHERE id = 100000 + 2 * number;
            DELETE FROM readings WHERE id = 100000 + 2 * number;
            DELETE FROM papers WHERE id = 100000 + 2 * number;
            COMMIT;
        END LOOP;
    END $$;
    CALL fill_shop(5001, 10000, repeat('a long body that Postgres keeps out of line ', 60));
"""


@dataclass(frozen=True)
class Load:
    """One load: what is prepared before its slot, and what the slot then sees."""

    name: str
    prepare: LiteralString
    call: LiteralString
    arguments: tuple[int, ...]
    changes: int

    def write(self, connection: "psycopg.Connection[tuple[object, ...]]") -> None:
        places = ", ".join(["%s"] * len(self.arguments))
        connection.execute(f"CALL {self.call}({places})", self.arguments)


def loads(scale: float) -> list[Load]:
    """All four; 1.0 is the full size."""

    def scaled(count: int) -> int:
        return max(1, round(count * scale))

    many, singles, huge, mixed = scaled(1000), scaled(300_000), scaled(1_000_000), scaled(25_000)
    return [
        Load("1,000-row transactions", _ORDERS, "fill_orders", (many, 1000), many * 1000),
        Load("single-row transactions", _ACCOUNTS, "move_money", (singles,), singles),
        Load("one transaction", _ORDERS, "fill_orders", (1, huge), huge),
        Load("five tables, mixed", _SHOP, "live_in_shop", (mixed,), mixed * 20),
    ]
