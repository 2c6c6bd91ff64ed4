"""Fixtures for pytest: `pytest_plugins = ["cdc.testing.fixtures"]` in your `conftest.py`."""

from collections.abc import Iterator

import pytest
from anyio.from_thread import start_blocking_portal

from cdc.testing.databases import running_postgres
from cdc.testing.sandbox import Sandbox, sandbox


@pytest.fixture(scope="session")
def shapelog_postgres() -> Iterator[str]:
    """One Postgres for all tests; how to connect to it. Override it to name one that is there already."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(running_postgres()) as url:
        yield url


@pytest.fixture
def shapelog(shapelog_postgres: str) -> Iterator[Sandbox]:
    """A database of the test's own, and a server that follows it."""
    with sandbox(shapelog_postgres) as box:
        yield box
