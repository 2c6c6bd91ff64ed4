"""What happens to the server in a story: transactions of all kinds, alterations, and a standby that takes over.

Chance chooses what, and in which table; what cannot be at the moment is left out.
"""

import asyncio
from dataclasses import replace
from typing import Final

from cdc.simulate.definitions import INT4, INT8, TEXT, VARCHAR
from cdc.simulate.partitions import attach_or_detach, change_part
from cdc.simulate.server import Transaction
from cdc.simulate.surroundings import Surroundings
from cdc.simulate.tables import Column, Relation, Row, Version

KEYS: Final = tuple(str(number) for number in range(1, 9))
VALUES: Final = {
    "grp": (None, "1", "1", "2", "3"),
    "val": (None, "a", "ab", "b", "x" * 50),
    "note": (None, "", "n", "\\N\t", "\u00e9" * 9),
}


class ServerDeeds:
    """Done to the server."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.random = around.random

    async def write(self) -> None:
        """A transaction writes, a new one or one that runs."""
        server = self.around.server
        running = server.running()
        transaction = self.random.choice(running) if running and self.random.random() < 0.6 else server.begin()
        for _ in range(self.random.choice((1, 1, 2, 3, 8))):
            self._change(transaction)

    async def storm(self) -> None:
        """Many transactions of a row each."""
        server = self.around.server
        for _ in range(self.random.choice((5, 20))):
            transaction = server.begin()
            self._change(transaction)
            server.commit(transaction)
            if self.random.random() < 0.9:
                server.show(transaction)
        self.around.server_news.set()

    async def huge(self) -> None:
        """One transaction of many rows."""
        server = self.around.server
        transaction = server.begin()
        for _ in range(self.random.choice((20, 60))):
            self._change(transaction)
        await self._commit(transaction)

    async def updates(self) -> None:
        """The same rows of a table are updated again and again, by one transaction after the other."""
        server = self.around.server
        relation = self.random.choice([one for one in server.relations.values() if not one.is_part])
        for _ in range(self.random.choice((3, 10))):
            transaction = server.begin()
            for _ in range(self.random.choice((1, 3))):
                self._change(transaction, relation, "U")
            await self._commit(transaction)
            await asyncio.sleep(self.random.choice((0.0, 0.01, 0.1)))

    async def truncate(self) -> None:
        """A transaction empties one table or more."""
        server = self.around.server
        if server.is_forgetful:
            await self._publish_meanwhile()  # where in a log a base begins would have two answers
            return
        running = server.running()
        transaction = self.random.choice(running) if running and self.random.random() < 0.5 else server.begin()
        free = [one for one in server.relations.values() if not one.leaves and server.may_lock(transaction, one)]
        if free:
            server.truncate(transaction, self.random.sample(free, min(len(free), self.random.choice((1, 1, 2, 3)))))
            self._change(transaction)
        if self.random.random() < 0.7:
            await self._commit(transaction)

    async def commit(self) -> None:
        """A transaction commits; mostly it is visible soon."""
        running = self.around.server.running()
        if running:
            await self._commit(self.random.choice(running))

    async def abort(self) -> None:
        """A transaction is rolled back."""
        running = self.around.server.running()
        if running:
            self.around.server.abort(self.random.choice(running))

    async def show(self) -> None:
        """Commits become visible."""
        for transaction in self.around.server.waiting():
            if self.random.random() < 0.7:
                self.around.server.show(transaction)

    async def idle(self) -> None:
        """The server writes what is nobody's business, and tells how far it is."""
        self.around.server.write_something(self.random.choice((0, 1, 500)))
        self.around.keepalives_due += 1
        self.around.server_news.set()

    async def alter(self) -> None:
        """A transaction alters a table, and mostly writes to it before or after."""
        server, random = self.around.server, self.random
        running = server.running()
        transaction = random.choice(running) if running and random.random() < 0.6 else server.begin()
        free = [one for one in server.relations.values() if not one.is_part and server.may_lock(transaction, one)]
        if not free:
            return
        relation = random.choice(free)
        version = self._altered(relation, transaction.version_of(relation))
        server.alter(transaction, relation, version)
        for _ in range(random.choice((0, 1, 2))):
            self._change(transaction, relation)
        if random.random() < 0.7:
            await self._commit(transaction)

    async def drop(self) -> None:
        """A table is dropped, and made anew under its name, with nothing in it."""
        server, random = self.around.server, self.random
        transaction = server.begin()
        others = [one for one in server.relations.values() if one.is_followed and not one.is_part]
        free = [one for one in others if server.may_lock(transaction, one)]
        if not free:
            server.abort(transaction)
            return
        server.replace(transaction, random.choice(free))
        await self._commit_and_show(transaction)

    async def partition(self) -> None:
        """A partition is attached, or detached."""
        transaction = self.around.server.begin()
        if attach_or_detach(self.around.server, self.random, transaction):
            await self._commit_and_show(transaction)
        else:
            self.around.server.abort(transaction)

    async def unpublish(self) -> None:
        """Somebody alters our publication: takes a table out, puts it back, or adds one of his own."""
        server, random = self.around.server, self.random
        if server.is_forgetful:
            await self._publish_meanwhile()
            return
        relation = random.choice(list(server.relations.values())).published
        if relation.is_followed and relation.published_since is None and not relation.has_holes:
            return
        is_published = relation.published_since is None
        server.publish(relation, is_published=is_published)
        relation.has_holes = relation.is_followed and not is_published
        if is_published:
            return
        if random.random() < 0.5:
            await asyncio.sleep(random.choice((0.0, 0.01, 1.0)))
        if random.random() < 0.5 and relation.published_since is None:
            server.publish(relation, is_published=True)
            relation.has_holes = False

    async def _publish_meanwhile(self) -> None:
        """A table that nobody follows is published while a transaction is under way that writes to it later."""
        server, random = self.around.server, self.random
        relation = next(one for one in server.relations.values() if not one.is_followed)
        transaction = server.begin()
        for _ in range(random.choice((1, 3, 8))):
            self._change(transaction)
        server.publish(relation, is_published=False)
        server.publish(relation, is_published=True)
        for number in range(random.choice((10, 20))):
            self._change(transaction, relation if number % 3 == 0 else None)
        await self._commit(transaction)
        stalls, self.around.stalls = self.around.stalls, 1.0  # it comes by halves, and again, and otherwise
        await asyncio.sleep(random.choice((0.05, 1.0, 4.0)))
        self.around.stalls = stalls
        if random.random() < 0.3:
            self.around.memory.cut_power()
        else:
            self.around.break_connection()

    async def fail_over(self) -> None:
        """A standby takes over."""
        self.take_over(loses=self.random.random() < 0.4)

    def take_over(self, *, loses: bool) -> None:
        """A standby takes over: with all there was, or without the last commits; its slot may know of less."""
        server, random = self.around.server, self.random
        if server.confirmed is None:
            return
        ends = [one.end_lsn for one in server.wal[-3:]]
        server.flush()
        switch = random.choice([server.insert_lsn, *ends]) if loses else server.insert_lsn
        known = [one.end_lsn for one in server.wal[-6:] if one.end_lsn <= min(switch, server.confirmed)]
        confirmed = min(switch, server.confirmed)
        server.fork(switch, random.choice([confirmed, confirmed, *known]))
        self.around.break_connection()

    async def crash(self) -> None:
        """The server crashes, and is back: without the commits that were not on its disk."""
        server = self.around.server
        if server.confirmed is None:
            return
        server.crash(self.random.choice([server.confirmed, server.confirmed, *server.confirmations[-6:]]))
        self.around.break_connection()

    async def lose_slot(self) -> None:
        """The slot is dropped, or loses its WAL; and the tables are written to before anybody can do something."""
        server = self.around.server
        if server.confirmed is None or server.is_slot_lost:
            return
        server.lose_slot(is_dropped=self.random.random() < 0.5)
        self.around.break_connection()
        await self.storm()

    async def flush(self) -> None:
        """The server's WAL reaches its disk."""
        self.around.server.flush()
        self.around.server_news.set()

    # What deeds are made of

    async def _commit(self, transaction: Transaction) -> None:
        server = self.around.server
        if not transaction.changes:
            server.abort(transaction)
            return
        server.commit(transaction)
        self.around.server_news.set()
        if self.random.random() < 0.3:
            await asyncio.sleep(0.002)
        if self.random.random() < 0.75 and transaction.xid in server.active:
            server.show(transaction)

    async def _commit_and_show(self, transaction: Transaction) -> None:
        """Of an altered table; it may take a while until that is seen."""
        server = self.around.server
        server.commit(transaction)
        self.around.server_news.set()
        await asyncio.sleep(self.random.choice((0.0, 0.1, 7.0)))
        if transaction.xid in server.active:
            server.show(transaction)

    def _change(self, transaction: Transaction, relation: Relation | None = None, kinds: str = "IIUUD") -> None:
        """Insert, update or delete a row that is nobody else's; insert one if there is none."""
        server, random = self.around.server, self.random
        relation = relation or random.choice(list(server.relations.values()))
        if relation.is_part:
            change_part(server, random, transaction, relation, self._row)
            return
        version = transaction.version_of(relation)
        if not server.may_write(transaction, relation):
            return
        if random.random() < 0.05:
            server.begin_subtransaction()
        rows = list(server.rows_for(transaction, relation))
        kind = random.choice(kinds) if rows else "I"
        old = random.choice(rows)[1] if kind != "I" else None
        new = self._row(version, old) if kind != "D" else None
        if new is not None:
            key = version.key_of(new)
            is_same = old is not None and version.key_of(old) == key
            if not is_same and not server.is_free(transaction, relation, key):
                return
        server.change(transaction, kind, relation, old, new)

    def _row(self, version: Version, old: Row | None) -> Row:
        """New values; of an update mostly only some."""
        random = self.random
        row = []
        for index, column in enumerate(version.columns):
            keeps = old is not None and random.random() < (0.85 if column.is_key else 0.5)
            values = KEYS if column.is_key else VALUES.get(column.name, VALUES["grp"])
            row.append(old[index] if keeps and old is not None else random.choice(values))
        return tuple(row)

    def _altered(self, relation: Relation, version: Version) -> Version:
        """A column comes, goes, or gets another name or type; or the table another name, or an identity."""
        random = self.random
        others = [column for column in version.columns if not column.is_key]
        what = random.choice(("add", "add", "drop", "retype", "rename column", "rename", "identity", "key"))
        if what == "identity":
            return replace(version, identity="d" if version.identity == "f" else "f")
        if what == "rename":
            name = version.name.removesuffix("_old")
            return replace(version, name=name if name != version.name else f"{name}_old")
        if what == "add" or not others:
            relation.columns_made += 1
            return version.with_column(Column(f"c{relation.columns_made}", *INT4, relation.columns_made))
        column = random.choice(others if what != "key" else [one for one in version.columns if one.is_key])
        what = random.choice(("retype", "rename column")) if what == "key" else what
        if what == "drop":
            return version.without(column)
        if what == "retype":
            kind = {INT4: INT8, INT8: INT4, TEXT: VARCHAR}.get((column.type_oid, column.type_name), TEXT)
            return version.changed(column, replace(column, type_oid=kind[0], type_name=kind[1]))
        relation.columns_made += 1
        return version.changed(column, replace(column, name=f"c{relation.columns_made}"))


SERVER_DEEDS: Final = {
    "write": (16, ServerDeeds.write),
    "commit": (14, ServerDeeds.commit),
    "abort": (2, ServerDeeds.abort),
    "show": (7, ServerDeeds.show),
    "storm": (5, ServerDeeds.storm),
    "huge": (3, ServerDeeds.huge),
    "updates": (3, ServerDeeds.updates),
    "truncate": (3, ServerDeeds.truncate),
    "alter": (2, ServerDeeds.alter),
    "drop": (0.7, ServerDeeds.drop),
    "partition": (2, ServerDeeds.partition),
    "unpublish": (2, ServerDeeds.unpublish),
    "flush": (8, ServerDeeds.flush),
    "crash of the server": (1, ServerDeeds.crash),
    "idle": (5, ServerDeeds.idle),
    "lose the slot": (0.4, ServerDeeds.lose_slot),
    "fail over": (0.5, ServerDeeds.fail_over),
}
"""What can happen, and how often."""
