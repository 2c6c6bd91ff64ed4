"""How far every log is durable, and so what Postgres may forget.

Pure: no clock, no files, no network. Of our packages it may import `storage.offset` only.
"""
