"""What the simulator's oracle asks for, where a story once made it ask for too much."""

from random import Random

from cdc.simulate.definitions import predicate_of, relations, some_shape
from cdc.simulate.oracle import Expectation
from cdc.simulate.server import Server, Transaction


def committed(server: Server, transaction: Transaction) -> Transaction:
    server.commit(transaction)
    server.flush()
    server.show(transaction)
    return transaction


def test_a_partition_that_came_back_and_was_emptied_asks_for_no_base() -> None:
    """Nobody knows yet that it came, so its TRUNCATE is none of the shape's, which ends with the next look."""
    server = Server(Random(1), relations(has_partitions=True))
    root = next(one for one in server.relations.values() if one.leaves)
    leaf = root.leaves[0]
    leaving, coming, emptying = server.begin(), server.begin(), server.begin()
    server.move(leaving, leaf, root)
    committed(server, leaving)
    _, seen = server.take()
    definition = some_shape(Random(1), root)
    expected = Expectation(server, definition, predicate_of(definition.where), seen)
    server.move(coming, leaf, root)
    committed(server, coming)
    server.truncate(emptying, [leaf])
    last = committed(server, emptying)
    assert [change.table for change in last.changes] == [root.oid], "it is the root's, since the leaf belongs to it"
    expected.check_end(last.end_lsn)
    assert expected.is_unsound_at(last.commit_lsn)
    assert expected.last_truncate_below(last.end_lsn) is None
