"""A tail's request for rows: held while there are none, woken by a commit, and freed when its client leaves."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cdc.http.rows import rows_answer
from shapes.http.connections import Connections
from tests.memory_socket import MemorySocket
from tests.shape_rig import Rig
from tests.waiting import eventually


class Tail:
    """One request for rows above the base, over a rig."""

    def __init__(self, wait: str = "20") -> None:
        self.rig = Rig()
        self.handled: list[Any] = []
        self.began = 0

        async def rows(request: Request) -> Response:
            self.began += 1
            try:
                answer = await rows_answer(self.rig.service, request)
            finally:
                self.handled.append(None)
            return answer

        self.connections = Connections(Starlette(routes=[Route("/{shape}/rows", rows)]))
        self.socket = MemorySocket(self.connections)
        target = f"/{self.rig.entry.handle}/rows?wait={wait}&after=0_inf"
        self.socket.send(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())

    async def held(self) -> None:
        visible = self.rig.store.watch(self.rig.entry.log).visible
        await eventually(lambda: visible._waiters, "it to be held")

    async def close(self) -> None:
        self.rig.app.stop()
        self.socket.close()
        await self.socket.closed.wait()


async def test_a_commit_wakes_it() -> None:
    tail = Tail()
    await tail.held()
    tail.rig.commit(500)
    answer = await tail.socket.answer()
    assert (answer.status, answer.headers["shapelog-next"], answer.body.count(b"\n")) == (200, "500_0", 1)
    await tail.close()


async def test_a_client_that_leaves_frees_it() -> None:
    tail = Tail()
    await tail.held()
    tail.socket.close()
    await eventually(lambda: tail.handled, "its handler to end")
    await tail.close()


async def test_a_stop_answers_it() -> None:
    tail = Tail()
    await tail.held()
    await tail.connections.end(5)
    answer = await tail.socket.answer()
    assert (answer.status, answer.body, answer.headers["connection"]) == (200, b"", "close")
    await tail.close()


@pytest.mark.parametrize("wait", ["nan", "-1", "-inf", "soon", ""])
async def test_what_is_no_time_is_not_waited_for(wait: str) -> None:
    tail = Tail(wait)
    answer = await tail.socket.answer()
    assert (answer.status, answer.body, answer.headers["shapelog-next"]) == (200, b"", "0_inf")
    await tail.close()
