"""What the console asks beside the admin API, under the same path and the same rules.

    GET /v1/admin/events     the last events of the program's log, the newest first; at most `limit`
    GET /v1/admin/samples    the curves of the last half hour, above the time `after`
    GET /v1/admin/lake       the newest versions of the lake, and the tables of the newest one
    GET /v1/admin/doctor     the doctor's findings; the same ones again for DOCTOR_KEPT_SECONDS

Invariant: however many consoles ask, the server is examined by one at a time, and not more often than that.
"""

import asyncio
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cdc.app import AppSettings
from cdc.doctor import as_json_text, examine
from cdc.http.console.lake_desk import LakeDesk
from cdc.http.console.recording import Recorder
from cdc.http.console.sampler import Sampler
from cdc.http.refusals import refusal
from cdc.limits import DOCTOR_KEPT_SECONDS, DOCTOR_SECONDS_MAX, EVENTS_SHOWN_MAX
from cdc.source.errors import SourceError, Unreachable
from storage.errors import StorageError


class ConsoleApi:
    """Answers the console."""

    def __init__(self, settings: AppSettings, recorder: Recorder, sampler: Sampler, lake: Path | None = None) -> None:
        self._settings = settings
        self._recorder = recorder
        self._sampler = sampler
        self._lake = LakeDesk(lake)
        self.rates = sampler.rates
        self._turn = asyncio.Lock()
        self._found: tuple[float, bytes] | None = None

    def routes(self) -> list[Route]:
        """To be mounted beside the admin API's."""
        return [
            Route("/v1/admin/events", self._events),
            Route("/v1/admin/samples", self._samples),
            Route("/v1/admin/lake", self._told_of_lake),
            Route("/v1/admin/doctor", self._doctor),
        ]

    async def _events(self, request: Request) -> Response:
        count = int(min(max(_number(request, "limit", EVENTS_SHOWN_MAX), 0), EVENTS_SHOWN_MAX))
        return _json(orjson.dumps({"events": self._recorder.newest(count)}))

    async def _samples(self, request: Request) -> Response:
        columns: dict[str, Any] = self._sampler.samples.columns(_number(request, "after", 0))
        return _json(orjson.dumps(columns))

    async def _told_of_lake(self, _: Request) -> Response:
        try:
            return _json(orjson.dumps(await self._lake.facts()))
        except StorageError as error:
            return refusal(error)

    async def _doctor(self, _: Request) -> Response:
        loop = asyncio.get_running_loop()
        async with self._turn:
            if self._found is None or loop.time() - self._found[0] > DOCTOR_KEPT_SECONDS:
                try:
                    self._found = (loop.time(), await self._examined())
                except SourceError as error:
                    return refusal(error)
            return _json(self._found[1])

    async def _examined(self) -> bytes:
        app = self._settings
        try:
            async with asyncio.timeout(DOCTOR_SECONDS_MAX):
                findings = await examine(app.database_url, app.slot, app.publication, [], app.mode)
        except TimeoutError:
            raise Unreachable(f"the server did not answer within {DOCTOR_SECONDS_MAX:g} s") from None
        return as_json_text(findings).encode()


def _number(request: Request, name: str, otherwise: float) -> float:
    """A number of the query; what is none is as if it were not there: nothing but a console asks."""
    try:
        number = float(request.query_params[name])
    except (KeyError, ValueError):
        return otherwise
    return number if number == number else otherwise  # noqa: PLR0124 - that is how a NaN is known


def _json(body: bytes) -> Response:
    return Response(body, headers={"cache-control": "no-store"}, media_type="application/json")
