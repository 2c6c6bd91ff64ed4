"""From the program's own log into `Events`: a handler of `logging`, for as long as the program runs."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from cdc.http.console.events import Events, event_of, values_of


class Recorder(logging.Handler):
    """Keeps the last events. Any thread logs; `logging` holds the handler's lock around `emit`."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._events = Events()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one; what cannot be told must not end who tells it."""
        try:
            error = record.exc_info[1] if record.exc_info else None
            text = record.getMessage()
            if error is not None:
                text = f"{text}: {type(error).__name__}: {error}"
            values = [*values_of(record.args), error]
            self._events.add(event_of(record.created, record.levelname.lower(), record.name, text, values))
        except Exception:  # noqa: BLE001 - as the handlers of the standard library
            self.handleError(record)

    def newest(self, count: int) -> list[dict[str, Any]]:
        """So many events as JSON, the newest first."""
        self.acquire()
        try:
            events = self._events.newest(count)
        finally:
            self.release()
        return [event.facts for event in events]


@contextlib.contextmanager
def recording() -> Iterator[Recorder]:
    """Hear all events while the context lasts."""
    recorder = Recorder()
    logging.getLogger().addHandler(recorder)
    try:
        yield recorder
    finally:
        logging.getLogger().removeHandler(recorder)
