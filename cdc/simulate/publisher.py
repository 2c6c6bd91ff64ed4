"""The publication of the model: the program adds tables to it; somebody else may take them out."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from cdc.simulate.server import Server
from cdc.simulate.surroundings import Surroundings
from cdc.simulate.tables import Relation
from cdc.source.alterations import Alterations
from cdc.source.errors import CannotPublish
from cdc.source.publication import Member, OldRow, PublicationChange, PublicationState, TableState, changes_between
from cdc.source.publisher import Published


def publication(server: Server) -> PublicationState:
    """As the catalog has it."""
    members = {
        one.oid: Member(one.oid, one.published_since, f'"public"."{one.name}"')
        for one in server.relations.values()
        if one.published_since is not None
    }
    roots = (one for one in server.relations.values() if one.leaves and one.oid in members)
    partitions = {str(root.oid): {str(leaf.oid): str(leaf.attached) for leaf in root.parts} for root in roots}
    return PublicationState("shapelog", 1, 1, tables=members, partitions=partitions)


class Publisher:
    """In place of `cdc.source.publisher`."""

    def __init__(self, around: Surroundings) -> None:
        self.baseline: PublicationState | None = None
        self._around = around
        self._settled: set[int] = set()
        self.alterations = Alterations()

    def connected(self) -> None:
        """A connection begins; what was altered before is in its verdict."""
        self._look()
        self.alterations.connected()

    def changes(self) -> tuple[PublicationChange, ...]:
        """What somebody else has altered, taken."""
        self._look()
        return self.alterations.take()

    async def publish(
        self,
        connection: object,  # noqa: ARG002 - as the real one
        names: Sequence[str],
        old_row: OldRow,
    ) -> Published:
        """Add tables; wait for those that wrote to them before."""
        server = self._around.server
        found = [one for one in server.relations.values() if f'"public"."{one.name}"' in names]
        if len(found) < len(names):
            raise CannotPublish(f"no such table: {names}")
        count = -1
        while count != self.alterations.count:
            await self._around.pause(0.01)
            for relation in found:
                await self._make_identity(relation, old_row)
            self._look()  # behind the last wait: what is published from here on to the baseline is ours
            for relation in found:
                if relation.published_since is None:
                    server.publish(relation, is_published=True)
                    relation.has_holes = False
            self.baseline, count = publication(server), self.alterations.count
            parts = {part.oid for one in found for part in (one, *one.parts)}
            await self._wait_for_writers(parts - self._settled)
        self._settled.update(parts)
        assert self.baseline is not None, "looked at above"
        leaves = {one.oid: tuple(_state_of(leaf, one) for leaf in one.parts) for one in found}
        return Published(self.baseline, {}, leaves, self.alterations.found)

    async def _make_identity(self, relation: Relation, old_row: OldRow) -> None:
        """Let rows be known as they were: whole for who needs that, else at least as in the beginning."""
        server = self._around.server
        wanted = "f" if old_row is OldRow.WHOLE else server.identity_of(relation)
        while relation.version.identity not in {wanted, "f"} and server.relations.get(relation.oid) is relation:
            transaction = server.begin()
            if not server.may_lock(transaction, relation):
                server.abort(transaction)
                await asyncio.sleep(0.03)
                continue
            server.alter(transaction, relation, replace(relation.version, identity=wanted))
            server.commit(transaction)
            server.show(transaction)

    async def _wait_for_writers(self, oids: set[int]) -> None:
        active = self._around.server.active
        writers = [one for one in active.values() if any(change.relation.oid in oids for change in one.changes)]
        while any(active.get(one.xid) is one for one in writers):  # noqa: ASYNC110 - the model tells nobody
            await asyncio.sleep(0.03)

    async def release(self, *_: object) -> tuple[int, ...]:
        """Nothing ever leaves the publication because of us."""
        return ()

    def _look(self) -> None:
        now = publication(self._around.server)
        if self.baseline is not None and (altered := changes_between(self.baseline, now)):
            self._settled.clear()
            self.alterations.find(altered)
        self.baseline = now


def _state_of(leaf: Relation, root: Relation) -> TableState:
    return TableState(leaf.oid, "public", leaf.name, "r", "p", leaf.version.identity, has_key=True, root=root.oid)
