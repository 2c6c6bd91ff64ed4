"""A disk that lets somebody do something before each operation: what another process or thread may do in between."""

from collections.abc import Callable
from typing import Any, cast

from storage.disk import Disk

Hook = Callable[[str, str], None]
"""Gets the operation's name and its (first) path."""


class Once:
    """A hook that acts once: at the operation with this number, counted while it is armed."""

    def __init__(self, place: int, act: Callable[[], object], *, armed: bool = False) -> None:
        self.place = place
        self.armed = armed
        self.calls = 0
        self._act = act

    def __call__(self, operation: str, path: str) -> None:
        self.calls += self.armed
        if self.armed and self.calls == self.place:
            self._act()

    @property
    def came(self) -> bool:
        """Whether there were so many operations."""
        return self.calls >= self.place


def hooked(disk: Disk, hook: Hook) -> Disk:
    """The same disk, with a hook before each operation. What the hook does itself is not hooked."""
    return cast("Disk", _Hooked(disk, hook))


class _Hooked:
    def __init__(self, disk: Disk, hook: Hook) -> None:
        self._disk = disk
        self._hook = hook
        self._is_in_hook = False

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._disk, name)
        if not callable(operation):
            return operation

        def call(path: str, *arguments: Any) -> Any:
            if not self._is_in_hook:
                self._is_in_hook = True
                try:
                    self._hook(name, path)
                finally:
                    self._is_in_hook = False
            return operation(path, *arguments)

        return call
