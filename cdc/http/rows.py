"""A shape's rows for a tail: from a position on, a JSON line each, held for a while when there are none."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc.inspect.walk import rows_as_json
from cdc.limits import TAIL_READ_BYTES, TAIL_WAIT_SECONDS_MAX
from shapes.service import Served, ShapeService
from storage.errors import Refetch
from storage.handle_reading import read_handle
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import ReadResult
from storage.watermark import Watermark

NOW: Final = "now"
"""As a position: only what comes from now on."""

COMING_SECONDS: Final = 1.0
"""Between two looks whether the successor of a shape is there."""

NEXT_HEADER: Final = "shapelog-next"
HANDLE_HEADER: Final = "shapelog-handle"


async def rows_answer(service: ShapeService, request: Request) -> Response:
    """The rows above `after` of the shape; 204 if a successor is coming.

    410 says to begin anew with the handle that it names: the one that was asked for has no more, or a fold has put what
    follows into a newer base.
    """
    asked = request.query_params
    served, handle, seconds = service.served_now(request.path_params["shape"]), asked.get("handle"), _seconds(asked)
    if served is None:
        await asyncio.sleep(min(seconds, COMING_SECONDS))
        return Response(status_code=204, headers={"cache-control": "no-store"})
    headers = {HANDLE_HEADER: served.handle, "cache-control": "no-store"}
    visible = service.watch(served).visible
    text = asked.get("after", NOW)
    after = max(visible.value, SNAPSHOT_END) if text == NOW else LogOffset.parse(text)
    if handle is not None and not _goes_on(service, handle, served, after):
        return _anew(served)
    try:
        result = await asyncio.to_thread(_read, service, served, after)
        if not result.rows and result.at_end and seconds:
            await _moved(visible, max(after, result.visible), seconds, request)
            result = await asyncio.to_thread(_read, service, served, after)
    except Refetch:
        return _anew(service.served_now(request.path_params["shape"]) or served)
    lines = "".join(f"{line}\n" for batch in result.rows for line in rows_as_json(batch))
    following = after if not result.rows and result.at_end else result.next
    return Response(lines, headers=headers | {NEXT_HEADER: str(following)}, media_type="application/x-ndjson")


def _anew(served: Served) -> JSONResponse:
    headers = {HANDLE_HEADER: served.handle, "cache-control": "no-store"}
    return JSONResponse({"handle": served.handle}, 410, headers=headers)


def _goes_on(service: ShapeService, handle: str, served: Served, after: LogOffset) -> bool:
    """Whether a reader of that handle may go on with this one: its log is the same, and its base is behind it."""
    entry = service.house.registry.find(handle)
    is_same = entry is not None and entry.log == served.log
    return handle == served.handle or (is_same and after >= SNAPSHOT_END)


def _read(service: ShapeService, served: Served, after: LogOffset) -> ReadResult:
    return read_handle(service.reader, served.log, served.base, after, TAIL_READ_BYTES)


def _seconds(asked: Mapping[str, str]) -> float:
    try:
        return min(max(0.0, float(asked.get("wait", 0))), TAIL_WAIT_SECONDS_MAX)  # in this order, `nan` is 0
    except ValueError:
        return 0.0


async def _moved(mark: Watermark[LogOffset], above: LogOffset, seconds: float, request: Request) -> None:
    """Until something above is visible, the log ends, nobody is there who would take it, or the time is up."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake(_: LogOffset | None) -> None:
        loop.call_soon_threadsafe(woken.set)

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        woken.set()

    subscription = mark.subscribe(above, wake)
    leaving = asyncio.create_task(leave())
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await woken.wait()
    finally:
        subscription.cancel()
        leaving.cancel()
