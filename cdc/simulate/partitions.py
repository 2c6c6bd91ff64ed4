"""Partitions of the model: which one a row belongs to, rows that move between them, and partitions that come and go."""

from collections.abc import Callable
from random import Random

from cdc.simulate.server import Server, Transaction
from cdc.simulate.tables import Key, Relation, Row, Version


def leaf_of(root: Relation, key: Key) -> Relation:
    """The partition for a key: the lower half of them is that of the first."""
    low, high = root.leaves
    return low if int(key[0] or 0) <= 4 else high


def change_part(
    server: Server,
    random: Random,
    transaction: Transaction,
    relation: Relation,
    make_row: Callable[[Version, Row | None], Row],
) -> None:
    """Insert, update or delete a row of a partitioned table, or of a partition; an update may move it to another."""
    root = relation if relation.leaves else relation.first_root
    assert root is not None, "of a part there is one"
    leaves = relation.parts if relation.leaves else [relation]
    leaves = [leaf for leaf in leaves if server.may_write(transaction, leaf)]
    rows = [(leaf, row) for leaf in leaves for _, row in server.rows_for(transaction, leaf)]
    kind = random.choice("IIUUD") if rows else "I"
    leaf, old = random.choice(rows) if kind != "I" else (relation, None)
    if kind == "D":
        server.change(transaction, "D", leaf, old, None)
        return
    new = make_row(leaf.version, old)
    key = leaf.version.key_of(new)
    target = leaf_of(root, key)
    if target not in leaves:
        return  # there is no partition for it, or it is locked
    is_same = old is not None and leaf.version.key_of(old) == key
    if not is_same and not server.is_free(transaction, target, key):
        return
    moved = target.version.converted(new, leaf.version)
    if old is None or target is leaf:
        server.change(transaction, kind, target, old, moved)
        return
    server.change(transaction, "D", leaf, old, None)
    server.change(transaction, "I", target, None, moved)


def attach_or_detach(server: Server, random: Random, transaction: Transaction) -> bool:
    """A partition comes or goes, with its rows; False if somebody else uses it, or there is none."""
    leaves = [one for one in server.relations.values() if one.first_root is not None]
    if not leaves:
        return False
    leaf = random.choice(leaves)
    root = leaf.first_root
    assert root is not None, "chosen so"
    if not (server.may_lock(transaction, leaf) and server.may_lock(transaction, root)):
        return False
    server.move(transaction, leaf, root)
    return True
