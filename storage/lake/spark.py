"""Spark as the lake uses it: a session with settings for a small machine, and a way to run pieces of work.

Spark plans nothing here but which process does what: pieces travel to Python workers, and what they wrote comes back.
So any cluster will do whose workers see the two folders and have this package installed.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from storage.errors import StorageError, from_os_error
from storage.lake.errors import TaskFailed
from storage.lake.java import java_home
from storage.lake.limits import TASK_ATTEMPTS_MAX
from storage.lake.loads import Runner
from storage.lake.tasks import Done, Work, run

MASTER: Final = "local[2]"

_SETTINGS: Final = {
    "spark.app.name": "shapelog materialize",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.log.level": "ERROR",
    "spark.task.maxFailures": str(TASK_ATTEMPTS_MAX),
}
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""On one machine, so that an address that changes does not end a session."""


def open_session(master: str = MASTER, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A Spark session; raises `JavaMissing` if it could not start."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shapelog"
    home = java_home(os.environ, cache)
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master)
    chosen = {**_SETTINGS, **(_LOCAL if master.startswith("local") else {}), **(settings or {})}
    if sys.stderr.isatty():
        chosen |= {"spark.ui.showConsoleProgress": "true"}
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def runner_of(session: SparkSession) -> Runner:
    """Work as one job: a task for each piece."""
    context = session.sparkContext

    def run_all(work: Sequence[Work]) -> list[Done]:
        if not work:
            return []
        try:
            found = context.parallelize(list(work), len(work)).mapPartitions(attempt_all).collect()
        except (Py4JJavaError, PySparkException) as error:
            raise TaskFailed(f"Spark gave up: {first_line(error)}") from error
        for one in found:
            if isinstance(one, StorageError):
                raise one
        return [one for one in found if isinstance(one, Done)]

    return run_all


def attempt_all(work: Iterable[Work]) -> Iterator[Done | StorageError]:
    """In a worker: a condition that has a name comes back as a value, since trying again would not help."""
    for one in work:
        try:
            yield run(one)
        except StorageError as error:
            yield error
        except OSError as error:
            yield from_os_error(error, error.filename or "a file of the lake")


def run_here(work: Sequence[Work]) -> list[Done]:
    """The same without Spark, in this process."""
    return [run(one) for one in work]


def first_line(error: Exception) -> str:
    """What went wrong, in a line: the last error of Python in it, if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b: ", line)]
    return (python[-1:] or lines or ["no reason"])[0][:500]
