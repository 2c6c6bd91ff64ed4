"""Parts to run beside us, for the demo and for tests of those who use shapelog: a Postgres, a server, their processes.

None of them outlives whoever started it.
"""
