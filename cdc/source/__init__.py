"""The Postgres end: replication session, wire decoding, transactions cut into fragments.

Of our packages it may import `storage.offset` only.
"""
