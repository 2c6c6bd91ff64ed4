"""What the console asks of a server, as JSON: events, curves and the doctor, under the rules of the admin API."""

import asyncio
import logging
from pathlib import Path
from typing import Any

from cdc.errors import AddressTaken
from cdc.http.console.page import CONSOLE_PATH
from cdc.http.console.samples import COLUMNS
from cdc.limits import DOCTOR_KEPT_SECONDS, EVENTS_SHOWN_MAX
from tests.browser.consoled import SHOP, consoled
from tests.postgres import Database
from tests.waiting import eventually

SECRET = "s3crët"  # noqa: S105 - of these tests only
ASKED = ("/v1/admin/events", "/v1/admin/samples", "/v1/admin/doctor")


async def test_the_page_is_for_all_and_its_facts_for_who_has_the_secret(
    newest_database: Database, tmp_path: Path
) -> None:
    async with consoled(newest_database, tmp_path, secret=SECRET) as console:
        http = console.http
        for path in (CONSOLE_PATH, f"{CONSOLE_PATH}/", f"{CONSOLE_PATH}/main.js"):
            assert (await http.get(path)).status_code == 200, path
            assert (await http.post(path)).status_code == 401, path
        assert (await http.get(f"{CONSOLE_PATH}/status")).status_code == 401
        for path in ASKED:
            assert (await http.get(path)).status_code == 401, path
            answer = await http.get(path, params={"secret": SECRET})
            assert answer.status_code == 200, path
            assert answer.headers["cache-control"] == "no-store"
            assert (await http.post(path, params={"secret": SECRET})).status_code == 405, path


async def test_events_and_curves(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(*SHOP)
    async with consoled(newest_database, tmp_path) as console:
        http = console.http

        async def ask(path: str, **params: Any) -> Any:
            answer = await http.get(path, params=params)
            assert answer.status_code == 200, answer.text
            return answer.json()

        await console.loop.add("orders")
        logging.getLogger("cdc").error("it failed: %s", AddressTaken("taken"))
        (newest,) = (await ask("/v1/admin/events", limit=1))["events"]
        assert (newest["text"], newest["code"], newest["hint"]) == (
            "it failed: taken",
            "address_taken",
            AddressTaken.hint,
        )
        for limit in ("nan", "inf", "x", "", "1e99"):
            events = (await ask("/v1/admin/events", limit=limit))["events"]
            assert 1 < len(events) <= EVENTS_SHOWN_MAX, limit
        assert (await ask("/v1/admin/events", limit="-3"))["events"] == []

        curves: dict[str, list[Any]] = {}

        async def has_grown() -> bool:
            newest_database.execute("INSERT INTO orders SELECT coalesce(max(id), 0) + 1, 1, 'new', 3 FROM orders")
            curves.update(await ask("/v1/admin/samples"))
            return any(curves["flushed_bytes_per_second"]) and any(curves["lag_bytes"])

        grown: bool = await eventually(has_grown, "bytes in the curves")
        assert grown
        assert tuple(curves) == COLUMNS
        assert any(curves["received_bytes_per_second"])
        later = await ask("/v1/admin/samples", after=curves["at"][-1])
        assert all(at > curves["at"][-1] for at in later["at"])


async def test_many_consoles_are_one_patient_to_the_doctor(newest_database: Database, tmp_path: Path) -> None:
    async with consoled(newest_database, tmp_path) as console:
        http = console.http
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(http.get("/v1/admin/doctor") for _ in range(8)))
        elapsed = asyncio.get_running_loop().time() - began
        assert elapsed < DOCTOR_KEPT_SECONDS, "the machine is too slow to tell"
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        found = answers[0].json()
        assert found["fit"] is True
        assert {"version", "slot"} <= {finding["check"] for finding in found["findings"]}
        assert elapsed < 4, "eight examinations take eight seconds"
