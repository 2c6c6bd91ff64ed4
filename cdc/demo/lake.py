"""The lake of the demo: `shapelog materialize` as a process, and what is in the tables that it makes.

It needs the extra `lake` and a Java; where one is missing, the demo goes without, and says so.
"""

import asyncio
import importlib.util
import os
import signal
from pathlib import Path
from typing import Final

import orjson

from cdc.demo.fold import Mismatch, Rows
from cdc.demo.shapes import DemoShape
from cdc.embedded.processes import Child, environment
from cdc.embedded.server import SHAPELOG
from storage.layout import PROGRESS

EVERY_SECONDS: Final = 2.0
"""Between two versions: on a small machine Spark must leave something to the others."""

VERSION_SECONDS_MAX: Final = 90.0
"""For the version that has everything: on a busy machine Spark alone may take half a minute to start."""

LOOK_SECONDS: Final = 0.1


def why_not() -> str | None:
    """What is missing for a lake, if anything is."""
    missing = [name for name in ("pyspark", "deltalake") if importlib.util.find_spec(name) is None]
    if missing:
        return f"without {' and '.join(missing)}: pip install 'shapelog[lake]'"
    from storage.lake.errors import JavaMissing  # noqa: PLC0415 - it needs what was looked for just now
    from storage.lake.java import VERSION_MIN, find_java  # noqa: PLC0415 - as above

    try:
        find_java(os.environ)
    except JavaMissing:
        return f"without Java {VERSION_MIN} or later: pip install 'shapelog[lake]' brings one"
    return None


class Lake:
    """The process, and how far it is."""

    def __init__(self, data: Path, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self.version: int | None = None
        self.lsn = 0
        """Of the newest version."""
        self._data = data
        self._scratch = scratch
        self._child: Child | None = None

    async def start(self) -> None:
        """Follow the data folder."""
        async with asyncio.timeout(VERSION_SECONDS_MAX):
            while not any(self._data.glob(f"{PROGRESS}*")):  # noqa: ASYNC110 - files do not tell that they are there
                await asyncio.sleep(LOOK_SECONDS)
        self._scratch.mkdir(exist_ok=True)
        folders = {"spark.local.dir": self._scratch, "spark.sql.warehouse.dir": self._scratch / "warehouse"}
        settings = [f"{name}={folder}" for name, folder in folders.items()]
        settings += [f'spark.driver.extraJavaOptions=-Djava.io.tmpdir="{self._scratch}"']
        settings += ["spark.ui.enabled=false"]
        options = [option for setting in settings for option in ("--conf", setting)]
        where = ("--data-dir", self._data, "--lake", self.folder, "--every", str(EVERY_SECONDS), "--json")
        scratch = environment(
            XDG_CACHE_HOME=str(self._scratch.resolve()),
            TMPDIR=str(self._scratch),
            JDK_JAVA_OPTIONS="-XX:-UsePerfData",  # those would stay in a temporary folder of Java's own
        )
        self._child = await Child.start(
            "lake", [*SHAPELOG, "materialize", *where, *options], hear=self._hear, environment=scratch
        )

    def must_run(self) -> None:
        """Raise `ProcessEnded` if it has ended by itself."""
        if self._child is not None:
            self._child.must_run()

    async def reached(self, lsn: int) -> None:
        """Return when a version has everything below this LSN."""
        async with asyncio.timeout(VERSION_SECONDS_MAX):
            while self.lsn < lsn:
                self.must_run()
                await asyncio.sleep(LOOK_SECONDS)

    def rows(self, shape: DemoShape, columns: list[str]) -> Rows:
        """A table's rows in the newest version. Raises `Mismatch` if a change or a key is there twice."""
        from storage.lake.lake_reader import open_lake  # noqa: PLC0415 - its packages need not be there

        table = open_lake(self.folder).latest().table(shape.name)
        places = table.dataset("changes").to_table(["_tx", "_op"])
        if places.group_by(["_tx", "_op"]).aggregate([]).num_rows != places.num_rows:
            raise Mismatch(f"{shape.name}: the lake has a change twice")
        found = table.dataset("state").to_table(columns)
        values = zip(*(found.column(name).to_pylist() for name in columns), strict=True)
        keys = zip(*(found.column(name).to_pylist() for name in shape.key), strict=True)
        rows = dict(zip(keys, values, strict=True))
        if len(rows) != found.num_rows:
            raise Mismatch(f"{shape.name}: the lake has {found.num_rows:,} rows with {len(rows):,} keys")
        return rows

    async def close(self, *, at_once: bool) -> None:
        """Finish the step under way; or leave it as it is, which harms nothing: Spark alone may take ten seconds."""
        if self._child is not None:
            await self._child.stop(signal.SIGKILL if at_once else signal.SIGINT)

    def _hear(self, line: str) -> None:
        try:
            told = orjson.loads(line)
            version, lsn = told["version"], told["lsn"]
        except (ValueError, KeyError, TypeError):
            return  # a word of Spark's
        if version is not None:
            self.version, self.lsn = version, lsn
