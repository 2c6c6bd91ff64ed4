"""Test functions may be coroutines: each runs in an event loop of its own, and must leave no task behind."""

import asyncio
import inspect
from collections.abc import Coroutine

import pytest

COROUTINE_SECONDS = 60
"""Below pytest's own timeout, so that a hanging test shows where it awaits instead of killing the run."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(function).parameters}
    asyncio.run(_alone(function(**arguments)))
    return True


async def _alone(test: Coroutine[object, object, None]) -> None:
    async with asyncio.timeout(COROUTINE_SECONDS):
        await test
    left = [task.get_coro() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, f"tasks left running: {left}"
