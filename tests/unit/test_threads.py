"""Work on threads: whoever is cancelled waits for it, so nothing writes behind the back of what comes next."""

import asyncio
import threading

import pytest

from shapes.threads import until_done
from storage.errors import SharedDiskFault
from tests.waiting import eventually


async def test_a_cancelled_wait_ends_with_its_work() -> None:
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait(20)
        ended.set()

    waiting = asyncio.create_task(until_done(work))
    await asyncio.to_thread(began.wait, 20)
    waiting.cancel()
    await asyncio.wait([waiting], timeout=0.05)
    assert not waiting.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


async def test_a_disk_that_refuses_is_asked_again_and_a_wait_for_it_may_be_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shapes.threads.FAULT_RETRY_SECONDS", 0.001)
    faults = [SharedDiskFault("no room"), SharedDiskFault("no room")]

    def work() -> str:
        if faults:
            raise faults.pop()
        return "done"

    assert await until_done(work) == "done"
    monkeypatch.setattr("shapes.threads.FAULT_RETRY_SECONDS", 3600.0)
    faults.append(SharedDiskFault("no room"))
    waiting = asyncio.create_task(until_done(work))
    await eventually(lambda: not faults, "the first attempt")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 20)
