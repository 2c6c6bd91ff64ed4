"""Spark as the lake uses it: a session with settings for a small machine, and a way to run pieces of work.

Spark plans nothing here but which process does what: pieces travel to Python workers, and what they wrote comes back.
So any cluster will do whose workers see the two folders and have this package installed.
"""

import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from socketserver import BaseServer
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from storage.errors import StorageError, from_os_error
from storage.lake.errors import SparkGone, TaskFailed
from storage.lake.java import java_home
from storage.lake.limits import SPARK_LOG_BYTES, TASK_ATTEMPTS_MAX
from storage.lake.loads import Runner
from storage.lake.tasks import Done, Work, run
from storage.lake.work_progress import Counts, CountsParam, Share

MASTER: Final = "local[2]"

_SETTINGS: Final = {
    "spark.app.name": "shapelog materialize",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.task.maxFailures": str(TASK_ATTEMPTS_MAX),
}
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""On one machine, so that an address that changes does not end a session."""

_LOCAL_MASTER: Final = re.compile(r"local\[(\d+|\*)\]")
"""Tried once only, unless the number of attempts is in the name."""

LOG_NAME: Final = "spark.log"
"""Spark's own log, in the folder of a user's things."""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOGGING: Final = f"""\
# Spark's own log goes to a file: whoever looks at the terminal wants to see versions.
appenders = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${{sys:shapelog.spark.log}}
appender.file.filePattern = ${{sys:shapelog.spark.log}}.1
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {SPARK_LOG_BYTES}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


@lru_cache(maxsize=1)
def own_folder() -> Path:
    """Where a user's things lie that may go at any time: the script for Java, Spark's log."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shapelog"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written, as in a container
        return Path(tempfile.mkdtemp(prefix="shapelog-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="shapelog-"))


def logging_options(folder: Path) -> str:
    """What a driver's Java is told, so that Spark's log goes to a file in this folder."""
    config = folder / "log4j2.properties"
    temporary = config.with_name(f"{config.name}.{os.getpid()}.tmp")
    temporary.write_text(_LOGGING)
    temporary.replace(config)
    return f'"-Dlog4j2.configurationFile={config.as_uri()}" "-Dshapelog.spark.log={folder / LOG_NAME}"'


def open_session(master: str = MASTER, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A Spark session; raises `JavaMissing` or `SparkGone` if it could not start."""
    own = own_folder()
    os.environ["JAVA_HOME"] = java_home(os.environ, own)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(_LOCAL_MASTER.sub(rf"local[\1,{TASK_ATTEMPTS_MAX}]", master))
    chosen = {**_SETTINGS, **(_LOCAL if master.startswith("local") else {}), **(settings or {})}
    chosen[_JAVA_OPTIONS] = f"{logging_options(own)} {chosen.get(_JAVA_OPTIONS, '')}".strip()
    for name, value in chosen.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (Py4JError, PySparkException, ConnectionError) as error:
        raise SparkGone(f"Spark did not start at {master}: {first_line(error)}") from error
    if (server := getattr(session.sparkContext, "_accumulatorServer", None)) is not None:  # pyspark's own affair
        hush(server)
    return session


def hush(server: BaseServer) -> None:
    """Let connections that end with Spark's process say nothing: `SparkGone` does, and these would with tracebacks."""
    logging.getLogger().addFilter(_is_of_others)
    show = server.handle_error

    def handle(request: Any, client_address: Any) -> None:  # noqa: ANN401 - whatever socketserver has
        if not isinstance(sys.exception(), EOFError | ConnectionError | PySparkRuntimeError):
            show(request, client_address)

    server.handle_error = handle  # type: ignore[method-assign]  # pyspark makes the server, and takes no class for it


def _is_of_others(record: logging.LogRecord) -> bool:
    """Of what is logged at the root itself: not what py4j does, which has loggers for all else."""
    return "py4j" not in Path(record.pathname).parts


def close_session(session: SparkSession) -> None:
    """End it; a process that is gone already cannot be ended."""
    with suppress(Py4JError, ConnectionError):
        session.stop()


def runner_of(session: SparkSession, tell: Callable[[Share], None] | None = None) -> Runner:
    """Work as one job: a task for each piece. `tell` hears how far it is, from a thread of Spark's."""
    context = session.sparkContext
    size, before, latest = 0, (0, 0, 0), (0, 0, 0)

    def hear(total: Counts) -> None:
        nonlocal latest
        latest = total
        if tell is not None:
            done, rows, files = (after - known for after, known in zip(total, before, strict=True))
            tell(Share(min(done, size), size, rows, files))

    counts = None if tell is None else context.accumulator((0, 0, 0), CountsParam(hear))
    attempt = attempt_all if counts is None else partial(attempt_all, counts=counts)

    def run_all(work: Sequence[Work]) -> list[Done]:
        nonlocal size, before
        if not work:
            return []
        size, before = len(work), latest
        if tell is not None:
            tell(Share(0, size))
        try:
            found = context.parallelize(list(work), len(work)).mapPartitions(attempt).collect()
        except (Py4JJavaError, PySparkException) as error:
            raise TaskFailed(f"Spark gave up: {first_line(error)}") from error
        except (Py4JError, ConnectionError) as error:
            raise SparkGone(f"Spark's process no longer answers: {first_line(error)}") from error
        finally:
            if tell is not None:
                tell(Share(size, size))
        for one in found:
            if isinstance(one, StorageError):
                raise one
        return [one for one in found if isinstance(one, Done)]

    return run_all


def attempt_all(work: Iterable[Work], counts: "Accumulator[Counts] | None" = None) -> Iterator[Done | StorageError]:
    """In a worker: a condition that has a name comes back as a value, since trying again would not help."""
    for one in work:
        try:
            done = run(one)
            if counts is not None:
                counts.add((1, done.rows, len(done.changes) + len(done.state)))
            yield done
        except StorageError as error:
            yield error
        except OSError as error:
            yield from_os_error(error, error.filename or "a file of the lake")


def run_here(work: Sequence[Work]) -> list[Done]:
    """The same without Spark, in this process."""
    return [run(one) for one in work]


def runner_here(tell: Callable[[Share], None]) -> Runner:
    """.. telling how far it is."""

    def run_all(work: Sequence[Work]) -> list[Done]:
        found = list[Done]()
        for one in work:
            share = Share(len(found), len(work), sum(done.rows for done in found), _files_of(found))
            tell(share)
            found.append(run(one))
        tell(Share(len(work), len(work)))
        return found

    return run_all


def _files_of(found: Iterable[Done]) -> int:
    return sum(len(done.changes) + len(done.state) for done in found)


def first_line(error: Exception) -> str:
    """What went wrong, in a line: the last error of Python in it, if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b: ", line)]
    return (python[-1:] or lines or ["no reason"])[0][:500]
