"""Processes that do not outlive who started them, whatever ends it; the last words of each are kept."""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1

LINE_BYTES_MAX: Final = 1024 * 1024
"""Of what a process says; a longer line is a defect of it."""

WORDS_KEPT: Final = 20
"""Lines of what a process said last: they tell why it ended."""

STOP_SECONDS_MAX: Final = 15.0
"""From the polite signal to SIGKILL: Spark takes some seconds to end."""


class ProcessEnded(Exception):
    """A process that should run does not."""


class Child:
    """A running process. It dies with the thread that started it: that one must live as long as it is wanted."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, hear: Callable[[str], None]) -> None:
        self.name = name
        self.words: deque[str] = deque(maxlen=WORDS_KEPT)
        self._process = process
        self._listener = asyncio.create_task(self._listen(hear), name=f"{name} is heard")

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str | Path],
        *,
        hear: Callable[[str], None] = lambda _: None,
        death: signal.Signals = signal.SIGKILL,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
    ) -> "Child":
        """Start it. `hear` gets each line that it says; it gets `death` when we are gone."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            cwd=cwd,
            user=user,
            limit=LINE_BYTES_MAX,
            process_group=0,  # Ctrl-C is for us, who then end our children in good order
            preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, death),  # it takes no lock
        )
        return cls(name, process, hear)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    def must_run(self) -> None:
        """Raise `ProcessEnded` if it has ended by itself."""
        if not self.is_running:
            said = " / ".join(list(self.words)[-3:]) or "without a word"
            raise ProcessEnded(f"the {self.name} has ended by itself, with {self._process.returncode}: {said}")

    async def kill(self) -> None:
        """End it as a power cut would."""
        await self._end(signal.SIGKILL)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, and see to it that it does."""
        await self._end(number)

    async def wait(self) -> int:
        """Its exit code, when nothing of it is left."""
        await self._listener
        return await self._process.wait()

    async def _end(self, number: signal.Signals) -> None:
        """Nobody speaks into its pipe any more once its own children have ended, too."""
        if self.is_running:
            self._process.send_signal(number)
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._process.wait()
                await asyncio.shield(self._listener)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            await self._process.wait()
            self._listener.cancel()

    async def _listen(self, hear: Callable[[str], None]) -> None:
        assert self._process.stdout is not None, "it was started with this pipe"
        async for line in self._process.stdout:
            text = line.decode("utf-8", "replace").rstrip()
            self.words.append(text)
            hear(text)


def environment(**more: str) -> dict[str, str]:
    """Ours, without what a user may have set for other servers."""
    others = ("PG", "SHAPELOG_", "DATABASE_URL", "SPARK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return kept | {"SHAPELOG_CONFIG": os.devnull} | more  # nor is a settings file of the user's meant for it


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def run(command: Sequence[str | Path], *, cwd: Path, user: str | None) -> None:
    """A process from its start to its end. Raises `ProcessEnded` if it fails."""
    child = await Child.start(Path(command[0]).name, command, cwd=cwd, user=user)
    try:
        status = await child.wait()
    except BaseException:
        await child.kill()
        raise
    if status:
        child.must_run()
