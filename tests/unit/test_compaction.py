"""Compaction against a plain model: fewer rows that tell the same, to whoever reads from wherever, whatever fails.

Strategy: legal histories over four keys, so that runs of UPDATEs, INSERTs and DELETEs meet often; a segment for every
flush, so that few transactions have many. Invariants after a compaction:

    the rows are some of those written, in their order, and from every offset on they lead to the same table
    up to every offset that the ledger allows they make the table that was there at that offset
    no read meets a hole or a row twice, in any unit; chunks are where they were before, behind the range
    a crash or a fault at any operation leaves one truth: the rows as they were, or compacted
"""
