"""A shape's changes as a stream of events, while there is somebody who takes them.

    data: <message>      for each row, then for `up-to-date`
    : keep-alive         where nothing happens

Where there are rows already, they are sent at once and the stream ends: caches can keep that. `up-to-date` names the
place behind the last transaction, and not the transaction: a client that comes back asks from there, and gets nothing
of that transaction again.
"""

from typing import Final

from shapes.http.clients import Client, Outflow
from shapes.http.encoding import up_to_date
from shapes.http.pages import Page
from shapes.http.problems import Problem
from shapes.http.row_format import RowFormat, Style
from shapes.http.serving import Serving
from shapes.service import Served
from storage.offset import LogOffset

HEADERS: Final = [("content-type", "text/event-stream"), ("connection", "keep-alive"), ("x-accel-buffering", "no")]
"""Beside those of every answer. The last one: proxies that gather what they pass on shall not."""

_KEEPALIVE: Final = b": keep-alive\n\n"


class EventStream:
    """One reader's stream."""

    def __init__(self, serving: Serving, served: Served, form: RowFormat, outflow: Outflow, retry_seconds: int) -> None:
        self._serving = serving
        self._served = served
        self._form = form
        self._outflow = outflow
        self._retry_seconds = retry_seconds

    async def first(self, after: LogOffset) -> Page:
        """What there is when the stream begins; raises the problems that are answered instead of it."""
        return await self._page(after)

    async def run(self, first: Page, client: Client) -> None:
        """From the first page to the end. Headers have been sent: what goes wrong ends the stream, orderly."""
        serving, settings = self._serving, self._serving.settings
        end = serving.now() + settings.sse_seconds
        had_rows = bool(first.rows)
        try:
            seen, after = await self._send_all(first, client)
            while not had_rows and await self._wait(seen, end, client):
                seen, after = await self._send_all(await self._page(after), client)
        except Problem:  # the client asks again, and is told then
            pass
        await client.send_body([])

    async def _send_all(self, page: Page, client: Client) -> tuple[LogOffset, LogOffset]:
        """Pages up to the end of the log, then `up-to-date`; nothing where there are none.

        Returns what the last one has seen, and where the next one begins; who waits for that needs no page in memory.
        """
        has_sent = False
        while page.rows:
            size = len(page.messages)
            self._outflow.enter(size, self._retry_seconds)
            try:
                await client.send_body([page.messages], more=True)
            finally:
                self._outflow.leave(size)
            has_sent = True
            if page.is_end:
                break
            page = await self._page(page.next)
        if has_sent and page.is_end:  # it may be an empty one: behind a base there may be no log yet
            await client.send_body([_event(up_to_date(page.next.tx + 1))], more=True)
        return page.seen, page.next

    async def _wait(self, above: LogOffset, end: float, client: Client) -> bool:
        """Whether there is news before the stream's time is up."""
        serving, keepalive = self._serving, self._serving.settings.sse_keepalive_seconds
        due = serving.now() + keepalive
        while not (serving.wakes.is_stopping or client.is_gone):
            now = serving.now()
            if now >= end:
                return False
            serving.check(self._served)
            if serving.visible(self._served) > above:
                return True
            if now >= due:
                await client.send_body([_KEEPALIVE], more=True)
                due = now + keepalive
            await serving.wakes.wait(self._served, above, min(due, end) - now, client.gone)
        return False

    async def _page(self, after: LogOffset) -> Page:
        return await self._serving.page(self._served, self._form, after, Style.EVENTS)


def _event(message: bytes) -> bytes:
    return b"data: " + message + b"\n\n"
