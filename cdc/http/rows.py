"""A shape's rows for a tail: from a position on, a JSON line each, held for a while when there are none."""

import asyncio
import contextlib
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc.inspect.walk import rows_as_json
from cdc.limits import TAIL_READ_BYTES, TAIL_WAIT_SECONDS_MAX
from shapes.service import Served, ShapeService
from storage.handle_reading import read_handle
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import ReadResult
from storage.watermark import Watermark

NOW: Final = "now"
"""As a position: only what comes from now on."""

NEXT_HEADER: Final = "shapelog-next"
HANDLE_HEADER: Final = "shapelog-handle"


async def rows_answer(service: ShapeService, request: Request) -> Response:
    """The rows above `after` of the shape; its present handle tells whether it is still the one that was asked for."""
    asked = request.query_params
    served = service.served_now(request.path_params["shape"])
    headers = {HANDLE_HEADER: served.handle, "cache-control": "no-store"}
    if asked.get("handle", served.handle) != served.handle:
        return JSONResponse({"handle": served.handle}, 410, headers=headers)
    text = asked.get("after", NOW)
    visible = service.watch(served).visible
    after = max(visible.value, SNAPSHOT_END) if text == NOW else LogOffset.parse(text)
    result = await asyncio.to_thread(_read, service, served, after)
    if not result.rows and result.at_end and (seconds := _seconds(asked.get("wait"))):
        await _moved(visible, max(after, result.visible), seconds)
        result = await asyncio.to_thread(_read, service, served, after)
    lines = "".join(f"{line}\n" for batch in result.rows for line in rows_as_json(batch))
    following = after if not result.rows and result.at_end else result.next
    return Response(lines, headers=headers | {NEXT_HEADER: str(following)}, media_type="application/x-ndjson")


def _read(service: ShapeService, served: Served, after: LogOffset) -> ReadResult:
    return read_handle(service.reader, served.log, served.base, after, TAIL_READ_BYTES)


def _seconds(text: str | None) -> float:
    try:
        return min(max(float(text or 0), 0.0), TAIL_WAIT_SECONDS_MAX)
    except ValueError:
        return 0.0


async def _moved(mark: Watermark[LogOffset], above: LogOffset, seconds: float) -> None:
    """Until something above is visible, the log ends, or the time is up."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    subscription = mark.subscribe(above, lambda _: loop.call_soon_threadsafe(woken.set))
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await woken.wait()
    finally:
        subscription.cancel()
