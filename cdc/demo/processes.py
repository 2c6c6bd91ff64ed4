"""The demo's processes: started, heard, told to stop, killed. Everything they say arrives in one queue, in order."""

import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue
from typing import IO, TypeAlias

from cdc.demo.messages import Message, heard


class Gone:
    """The process has ended, and all that it said was heard."""


Said: TypeAlias = Message | str | Gone
Inbox: TypeAlias = "Queue[tuple[Child, Said]]"


class Child:
    """A process that ends with us, whatever ends us: it listens to a pipe that only we hold open."""

    def __init__(self, inbox: Inbox, name: str, role: str, folder: Path, *arguments: str) -> None:
        self.name = name
        # -P: a folder called `storage` in the present directory must not be taken for ours. A process group of its
        # own: Ctrl-C is for us, who then end our children in good order.
        command = [sys.executable, "-P", "-m", "cdc.demo", role, str(folder), *arguments]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
        )
        self._listener = threading.Thread(target=self._listen, args=(inbox,), name=name, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, last: int | None = None) -> None:
        """Ask the process to come to its end: after this transaction, or at the next."""
        pipe = _opened(self._process.stdin)
        try:
            pipe.write(b"stop\n" if last is None else b"stop %d\n" % last)
            pipe.flush()
        except BrokenPipeError:
            return  # it has ended already, and we are about to hear of it

    def kill(self) -> None:
        """End it as a power cut would: it learns nothing of this."""
        self._process.kill()

    def wait(self) -> None:
        """Return when nothing of the process is left."""
        self._process.wait()
        self._listener.join()
        _opened(self._process.stdin).close()
        _opened(self._process.stdout).close()

    def _listen(self, inbox: Inbox) -> None:
        for line in _opened(self._process.stdout):
            if line.endswith(b"\n"):  # else a kill came in the middle of it
                inbox.put((self, heard(line)))
        self._process.wait()
        inbox.put((self, Gone()))


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "it was started with this pipe"
    return pipe
