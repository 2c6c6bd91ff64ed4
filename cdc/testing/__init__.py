"""For tests of those who use shapelog: a real Postgres, a real server beside it, and clients of it.

    from cdc.testing import sandbox

    with sandbox() as box: ...

For pytest there are fixtures: `pytest_plugins = ["cdc.testing.fixtures"]`.
"""

from cdc.testing.sandbox import Sandbox, sandbox

__all__ = ["Sandbox", "sandbox"]
