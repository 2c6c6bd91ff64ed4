"""What happens in the recorded streams: the tables before the slot, and the statements that the slot then sees."""

from typing import LiteralString

TYPES: LiteralString = """
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'very "happy"');
    CREATE TYPE pair AS (a int, b text);
    CREATE DOMAIN positive AS numeric CHECK (value > 0);
    CREATE TYPE span AS RANGE (subtype = float8);
    CREATE TABLE every_type (
        id int PRIMARY KEY, small int2, large int8, exact numeric, "real" real, double float8, truth bool,
        chars char(5), words varchar(20), body text, blob bytea, day date, clock time, clock_tz timetz,
        moment timestamp, moment_tz timestamptz, lasting interval, feeling mood, two pair, above positive,
        numbers int4range, times tstzrange, pieces int4multirange, custom span, doc json, docb jsonb,
        bits bit(4), more_bits bit varying, key uuid, host inet, net cidr, mac macaddr, search tsvector, ask tsquery,
        spot point, shape polygon, ring circle, cash money, place pg_lsn, ids int[], names text[][], moods mood[],
        pairs pair[], label name, object oid, path jsonpath);
"""

VALUES: list[LiteralString] = [
    "INSERT INTO every_type (id) VALUES (1)",
    """INSERT INTO every_type VALUES (2, -32768, 9223372036854775807, 'NaN', 'NaN', 'Infinity', true,
        'ab', 'words', E'line\\n"quoted" \\\\ ''tab''\\t', '\\x00ff6400000077', '0044-03-15 BC', '24:00',
        '12:34:56.789-05:30',
        'infinity', '-infinity', '-1 year 2 mons -3 days 04:05:06.7', 'very "happy"', '(1,"a ""b"", c")', 0.5,
        '[1,5)', '[2024-01-01 00:00+00,infinity)', '{[1,3),[5,)}', '[1.5,NaN]', '{"a" :  1}', '{"b": [1, null,
        "\\u00e9"]}',
        B'1010', B'', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '::1/64', '10.0.0.0/8',
        '08:00:2b:01:02:03', 'a:1A fat:2B,4C cat:5', 'fat & !rat:ab', '(1.5,-0)', '((0,0),(1,1),(2,0))', '<(1,2),3>',
        '-12.34', '16/B374D848', '[0:2]={1,NULL,3}', '{{a,"b c"},{NULL,"NULL"}}', '{ok,NULL}', '{"(1,x)","(,)"}',
        'a name', 4294967295, '$.a[*] ? (@ > 1)')""",
    """INSERT INTO every_type (id, exact, double, "real", moment_tz, day, body, chars, ids, numbers, docb) VALUES
        (3, '-Infinity', '-0', 1e-45, '4713-01-01 00:00:00+00 BC', '5874897-12-31', 'Grüße, 世界 🎈', 'é', '{}',
        'empty', '0'),
        (4, 123456789012345678901234567890.000000000001, 0.1, 3.4e38, '2024-02-29 23:59:59.999999+14', 'infinity', '',
         '', '{{1,2},{3,4}}', '(,)', '"\\\\u0000 not really"'),
        (5, 0.00, 5e-324, 0.1, '294276-12-31 23:59:59.999999+00', '-infinity', repeat('x', 5000), 'abcde', NULL,
         '[-5,-4)', '[]')""",
]

TABLES: LiteralString = """
    CREATE TABLE by_key (id int PRIMARY KEY, a text, b int);
    CREATE TABLE by_two (a int, b text, c text, PRIMARY KEY (a, b));
    CREATE TABLE by_index (a int NOT NULL, b text NOT NULL UNIQUE, c text);
    ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_b_key;
    CREATE TABLE by_all (a int, b text, c text);
    ALTER TABLE by_all REPLICA IDENTITY FULL;
    CREATE TABLE by_nothing (a int, b text);
    ALTER TABLE by_nothing REPLICA IDENTITY NOTHING;
    CREATE TABLE toasted (id int PRIMARY KEY, body text, n int, more text);
    CREATE TABLE toasted_all (id int, body text, n int);
    ALTER TABLE toasted ALTER body SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL;
    ALTER TABLE toasted_all ALTER body SET STORAGE EXTERNAL;
    ALTER TABLE toasted_all REPLICA IDENTITY FULL;
    CREATE TABLE parted (id int, at date, v text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
    CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
    CREATE TABLE parted_2 (v text, at date NOT NULL, id int NOT NULL);
    ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
    CREATE SCHEMA "Other Schema";
    CREATE TABLE "Other Schema"."T""a b" ("Col ""1" int PRIMARY KEY, "ключ" text, "select" text);
    CREATE TABLE changing (id int PRIMARY KEY, a text);
    CREATE TABLE made (id int PRIMARY KEY, a int, twice int GENERATED ALWAYS AS (a * 2) STORED);
    CREATE TABLE copied (id int PRIMARY KEY, body text);
    CREATE TABLE parent (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
    CREATE TABLE child (id int PRIMARY KEY, parent_id int REFERENCES parent);
    CREATE TABLE filtered (id int PRIMARY KEY, v int);
    CREATE TABLE some_columns (id int PRIMARY KEY, a text, secret text);
    CREATE TABLE no_columns ();
"""

WIDE: LiteralString = """
    DO $$ BEGIN EXECUTE 'CREATE TABLE wide (' ||
        (SELECT string_agg('c' || n || ' int2', ', ' ORDER BY n) FROM generate_series(1, 1600) n) || ')'; END $$
"""

PUBLICATION: LiteralString = """
    CREATE PUBLICATION recorded FOR TABLE every_type, by_key, by_two, by_index, by_all, by_nothing, toasted,
        toasted_all,
        parted, "Other Schema"."T""a b", changing, made, copied, parent, child, no_columns, wide,
        filtered WHERE (id > 1), some_columns (id, a)
"""

OPTIONAL: list[tuple[LiteralString, LiteralString]] = [
    (
        """CREATE TABLE with_xml (id int PRIMARY KEY, tree xml); INSERT INTO with_xml VALUES (1, '<a/>');
            ALTER PUBLICATION recorded ADD TABLE with_xml""",
        """INSERT INTO with_xml VALUES (2, '<a b="c">d</a>')""",
    ),
    (
        """CREATE EXTENSION hstore; CREATE TABLE with_hstore (id int PRIMARY KEY, pairs hstore);
            ALTER PUBLICATION recorded ADD TABLE with_hstore""",
        """INSERT INTO with_hstore VALUES (1, '"a b"=>"1", c=>NULL')""",
    ),
]
"""What not every server has: a preparation that may fail, and what is told if it did not."""

ORIGIN: list[LiteralString] = [
    "SELECT pg_replication_origin_create('elsewhere')",
    """DO $$ BEGIN
        PERFORM pg_replication_origin_session_setup('elsewhere');
        PERFORM pg_replication_origin_xact_setup('16/B374D848', '2024-01-02 03:04:05+00');
        INSERT INTO by_key VALUES (900, 'from elsewhere', 1);
    END $$""",
    "SELECT pg_replication_origin_session_reset(), pg_replication_origin_drop('elsewhere')",
]

TOLD: list[LiteralString] = [
    *VALUES,
    "UPDATE every_type SET body = NULL, moods = '{sad}' WHERE id = 2",
    "DELETE FROM every_type WHERE id IN (1, 3)",
    # Identities: of a key, two columns, an index, everything, nothing.
    "INSERT INTO by_key SELECT n, 'a' || n, n FROM generate_series(1, 20) n",
    "UPDATE by_key SET b = b + 1 WHERE id <= 5",
    "UPDATE by_key SET id = id + 100 WHERE id <= 3; DELETE FROM by_key WHERE id > 15",
    "INSERT INTO by_two VALUES (1, 'x', 'c'), (1, 'y', NULL); UPDATE by_two SET b = b || b; DELETE FROM by_two",
    "INSERT INTO by_index VALUES (1, 'x', 'c'), (2, 'y', 'd')",
    "UPDATE by_index SET b = 'z' WHERE a = 1; UPDATE by_index SET c = NULL; DELETE FROM by_index WHERE a = 2",
    "INSERT INTO by_all VALUES (1, NULL, 'c'), (NULL, '', 'd'), (1, NULL, 'c')",
    "UPDATE by_all SET c = 'changed' WHERE a = 1; DELETE FROM by_all",
    "INSERT INTO by_nothing VALUES (1, 'only inserts')",
    # Values that are not sent, because they did not change.
    "INSERT INTO toasted VALUES (1, repeat('long ', 2000), 1, repeat('more ', 1500)), (2, 'short', 1, NULL)",
    "UPDATE toasted SET n = n + 1",
    "UPDATE toasted SET more = 'now short' WHERE id = 1; UPDATE toasted SET id = 3 WHERE id = 1; DELETE FROM toasted",
    """INSERT INTO toasted_all VALUES (1, repeat('long ', 2000), 1); UPDATE toasted_all SET n = 2;
        DELETE FROM toasted_all""",
    # Partitions, one with its columns in another order; a row that moves is a delete and an insert.
    "INSERT INTO parted VALUES (1, '2024-01-05', 'a'), (2, '2024-02-05', 'b')",
    "UPDATE parted SET at = '2024-02-06', v = 'moved' WHERE id = 1; UPDATE parted SET v = 'stays'; DELETE FROM parted",
    """INSERT INTO "Other Schema"."T""a b" VALUES (1, 'значение', 'x'); TRUNCATE "Other Schema"."T""a b" """,
    # The table changes, between transactions and inside of one.
    "INSERT INTO changing VALUES (1, 'before')",
    "ALTER TABLE changing ADD b int DEFAULT 7; INSERT INTO changing VALUES (2, 'added', 8)",
    "ALTER TABLE changing RENAME a TO renamed",
    """INSERT INTO changing VALUES (3, 'renamed', 9); ALTER TABLE changing ALTER b TYPE text USING 'n' || b;
        UPDATE changing SET renamed = 'retyped'""",
    """ALTER TABLE changing DROP b; INSERT INTO changing VALUES (4, 'dropped');
        ALTER TABLE changing REPLICA IDENTITY FULL;
        DELETE FROM changing WHERE id = 1""",
    """ALTER TABLE changing RENAME TO renamed; INSERT INTO renamed VALUES (5, 'renamed');
        CREATE INDEX ON renamed (renamed)""",
    "INSERT INTO renamed VALUES (6, 'the same description comes again')",
    "INSERT INTO made VALUES (1, 21); UPDATE made SET a = 4",
    # Sub-transactions, rolled back in part; a transaction with nothing in it; one that leaves nothing.
    """BEGIN; INSERT INTO by_key VALUES (200, 'kept', 1); SAVEPOINT one; INSERT INTO by_key VALUES (201, 'gone', 1);
        ROLLBACK TO one; INSERT INTO by_key VALUES (202, 'kept', 1); SAVEPOINT two;
        INSERT INTO by_all VALUES (2, 'k', 'l');
        RELEASE two; COMMIT""",
    "CREATE TABLE unpublished (a int); INSERT INTO unpublished SELECT generate_series(1, 50)",
    "BEGIN; INSERT INTO by_key VALUES (300, 'rolled back', 1); ROLLBACK",
    "BEGIN; INSERT INTO by_key VALUES (400, 'prepared', 1); PREPARE TRANSACTION 'first'",
    "INSERT INTO by_key VALUES (401, 'overtakes the prepared', 1)",
    "COMMIT PREPARED 'first'",
    "INSERT INTO copied SELECT n, 'row ' || n FROM generate_series(1, 300) n",
    "SELECT lo_create(70001)",
    "SELECT lo_put(70001, 0, 'a large object')",
    # Messages, in a transaction and outside of any.
    "SELECT pg_logical_emit_message(false, 'outside', 'now'); INSERT INTO by_key VALUES (500, 'after a message', 1)",
    """BEGIN; SELECT pg_logical_emit_message(true, 'inside', 'first'); INSERT INTO by_key VALUES (501, 'a', 1);
        SELECT pg_logical_emit_message(true, 'inside', '\\x00ff'::bytea); INSERT INTO by_key VALUES (502, 'b', 1);
        SELECT pg_logical_emit_message(true, '', ''); COMMIT""",
    "SELECT pg_logical_emit_message(true, 'alone', repeat('m', 300))",
    *ORIGIN,
    # Filters and column lists change what is sent, and make updates into inserts and deletes.
    """INSERT INTO filtered VALUES (1, 1), (2, 2); UPDATE filtered SET id = 3 WHERE id = 1;
        UPDATE filtered SET id = 0 WHERE id = 2""",
    "INSERT INTO some_columns VALUES (1, 'a', 'not sent'); UPDATE some_columns SET a = 'b'; DELETE FROM some_columns",
    "INSERT INTO no_columns DEFAULT VALUES",
    "INSERT INTO wide (c1, c800, c1600) VALUES (1, 800, 1600), (NULL, NULL, NULL)",
    # TRUNCATE of one, of several, in the middle of a transaction, of a partition.
    "INSERT INTO parent (v) VALUES ('p'); INSERT INTO child VALUES (1, 1)",
    "TRUNCATE parent, child RESTART IDENTITY",
    """BEGIN; INSERT INTO by_key VALUES (600, 'before', 1); TRUNCATE parent CASCADE;
        INSERT INTO by_key VALUES (601, 'after', 1);
        TRUNCATE by_all, by_two; INSERT INTO by_all VALUES (1, 'b', 'c'); COMMIT""",
    "TRUNCATE parted_1",
    "TRUNCATE parted",
    "BEGIN; TRUNCATE by_nothing; COMMIT",
]
