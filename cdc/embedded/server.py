"""The program itself, as `shapelog serve` starts it: a process that is killed and comes back, and what it tells."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from cdc.embedded.processes import Child, environment, free_port
from cdc.http.console.page import CONSOLE_PATH

# -P: a folder called `storage` in the present directory must not be taken for ours.
SHAPELOG: Final = (sys.executable, "-P", "-m", "cdc.cli")

ANSWER_SECONDS_MAX: Final = 10.0
"""For one answer; one that takes longer comes from a machine that is too busy."""

ACTIVE_SECONDS_MAX: Final = 60.0
"""From a start until readers are served; two on an idle machine."""

BIRTH_SECONDS_MAX: Final = 60.0
"""For a shape to be there with its rows."""

LOOK_SECONDS: Final = 0.1


class NotAdded(Exception):
    """The server did not take a shape."""


class Server:
    """One server over its lives: the port and the folder stay, the process changes."""

    def __init__(self, database_url: str, folder: Path, options: Sequence[str] = ()) -> None:
        """`options` are further ones of `shapelog serve`."""
        self.folder = folder
        self._options = options
        self.kills = 0
        self._port = free_port()
        self._environment = environment(DATABASE_URL=database_url)
        self._client = httpx.AsyncClient(base_url=self.url, timeout=ANSWER_SECONDS_MAX)
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def console_url(self) -> str:
        """For a browser."""
        return self.url + CONSOLE_PATH

    @property
    def child(self) -> Child:
        """The process that runs now."""
        assert self._child is not None, "it was started"
        return self._child

    async def start(self) -> None:
        """A new process; it does not answer yet."""
        command = [*SHAPELOG, "serve", "--data-dir", str(self.folder), "--port", str(self._port), *self._options]
        self._child = await Child.start("server", command, environment=self._environment)

    async def active(self) -> None:
        """Return when it has caught up with the stream, and readers are served."""
        async with asyncio.timeout(ACTIVE_SECONDS_MAX):
            while not await self._is_active():
                self.child.must_run()
                await asyncio.sleep(LOOK_SECONDS)

    async def kill(self) -> int:
        """SIGKILL; the number of the process that was."""
        self.kills += 1
        await self.child.kill()
        return self.child.pid

    async def add(self, **asked: Any) -> dict[str, Any]:
        """Add a shape: its `table`, and perhaps `name`, `where`, .. Facts about it, when its rows are there."""
        answer = await self._client.post("/v1/admin/shapes", json={**asked, "wait": True}, timeout=BIRTH_SECONDS_MAX)
        told = orjson.loads(answer.text.splitlines()[-1])
        if "shape" not in told:
            raise NotAdded(f"{asked.get('name', asked.get('table'))}: {told.get('error', told)}")
        shape: dict[str, Any] = told["shape"]
        return shape

    async def status(self) -> dict[str, Any] | None:
        """What it says of itself; None while it does not answer."""
        try:
            answer = await self._client.get("/v1/admin/status")
            facts: dict[str, Any] = orjson.loads(answer.content)
        except (httpx.HTTPError, orjson.JSONDecodeError):
            return None
        return facts if answer.status_code == httpx.codes.OK else None

    async def close(self) -> None:
        """End the process in good order, if it lets us."""
        await self._client.aclose()
        if self._child is not None:
            await self._child.stop()

    async def _is_active(self) -> bool:
        try:
            return (await self._client.get("/v1/health")).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False
