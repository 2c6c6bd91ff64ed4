"""The format `shapelog` of Spark: a shape's log as a frame or a stream, for users' own jobs.

    from storage.lake.source import register
    register(spark)
    spark.read.format("shapelog").option("data", "data").option("shape", "orders").load()
    spark.readStream.format("shapelog").option("data", "data").option("shape", "orders").load()

The rows are those of the lake's table of changes; those of the base come first, as inserts with `_tx` 0.

Options: `data`, the data folder; `shape`, a name or a handle; `after`, an offset to begin behind; `maxRows`, for a
stream: about so many rows in a micro-batch; `gaps`: `allowed` takes a log as it is whose updates became fewer, which is
an error otherwise. A schema with fewer columns reads fewer; comparisons of `_tx` narrow it.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from storage.lake.errors import InvalidOption
from storage.lake.log_source import LogSource
from storage.lake.table_schema import LOG_TX
from storage.offset import BEFORE_ALL, OP_INFINITE, TX_MAX, LogOffset

FORMAT: Final = "shapelog"

_REFUSED: Final = "refused"
_ALLOWED: Final = "allowed"

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""Off unless asked for; and then Spark refuses a reader that would take filters."""


def register(session: SparkSession) -> None:
    """Make the format known to a session, which passes on filters from then on."""
    session.conf.set(_PUSHDOWN, "true")
    session.dataSource.register(ShapelogSource)


@dataclass
class Part(InputPartition):
    """A range of offsets of a handle, as text: rows above the first, up to the second.

    By handle, for a name may stand on another base when the part is read.
    """

    handle: str
    after: str
    upto: str


class ShapelogSource(DataSource):
    """The format."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = {name.lower(): value for name, value in options.items()}
        for name in ("data", "shape"):
            if not self._options.get(name):
                raise InvalidOption(f"the option {name!r} is missing")
        if self._options.setdefault("gaps", _REFUSED) not in {_REFUSED, _ALLOWED}:
            raise InvalidOption(f"gaps is {_REFUSED} or {_ALLOWED}, not {self._options['gaps']!r}")
        self._options["data"] = str(Path(self._options["data"]).resolve())  # workers stand somewhere else

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(self._source().schema.changes)

    def reader(self, schema: StructType) -> "ShapelogReader":
        return ShapelogReader(self._options, schema.names)

    def streamReader(self, schema: StructType) -> "ShapelogStreamReader":  # noqa: N802 - Spark's name
        return ShapelogStreamReader(self._options, schema.names)

    def _source(self) -> LogSource:
        return _opened(self._options, self._options["shape"])


def _opened(options: Mapping[str, str], shape: str) -> LogSource:
    return LogSource(options["data"], shape, allows_gaps=options["gaps"] == _ALLOWED)


class _Reading:
    """What both readers share. Travels to workers, so it holds text only."""

    def __init__(self, options: Mapping[str, str], columns: list[str]) -> None:
        self._options = dict(options)
        self._columns = columns

    def source(self) -> LogSource:
        """Opened where it is needed."""
        return _opened(self._options, self._options["shape"])

    def start(self) -> LogOffset:
        """Behind which offset to begin."""
        return LogOffset.parse(self._options.get("after", str(BEFORE_ALL)))

    def parts(self, source: LogSource, after: LogOffset, upto: LogOffset) -> list[Part]:
        """The range, for as many tasks as are worth it."""
        handle = source.shape.handle
        parts = [Part(handle, str(start), str(stop)) for start, stop in source.ranges(after, upto)]
        return parts or [Part(handle, "-1", "-1")]

    def rows(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        assert isinstance(part, Part), "it is one of ours"
        after, upto = LogOffset.parse(part.after), LogOffset.parse(part.upto)
        yield from _opened(self._options, part.handle).read(after, upto, self._columns)


class ShapelogReader(_Reading, DataSourceReader):
    """All that is there now."""

    def __init__(self, options: Mapping[str, str], columns: list[str]) -> None:
        super().__init__(options, columns)
        self._low, self._high = 0, TX_MAX

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Comparisons of `_tx` narrow what is read; Spark applies them too."""
        for one in filters:
            if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
                if one.attribute != (LOG_TX,) or not isinstance(one.value, int):
                    continue
                if not isinstance(one, LessThan | LessThanOrEqual):
                    self._low = max(self._low, one.value + isinstance(one, GreaterThan))
                if not isinstance(one, GreaterThan | GreaterThanOrEqual):
                    self._high = min(self._high, one.value - isinstance(one, LessThan))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        source = self.source()
        low = LogOffset(self._low - 1, OP_INFINITE) if self._low > 0 else BEFORE_ALL
        high = LogOffset(self._high, OP_INFINITE) if self._high >= 0 else BEFORE_ALL
        return self.parts(source, max(self.start(), low), min(source.end(), high))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self.rows(partition)


class ShapelogStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes, micro-batch by micro-batch. A range is a function of its two ends, so a batch can be repeated."""

    def __init__(self, options: Mapping[str, str], columns: list[str]) -> None:
        super().__init__(options, columns)
        self._stop: str | None = None
        text = self._options.get("maxrows")
        if text is not None and not (text.isdecimal() and int(text)):
            raise InvalidOption(f"maxRows is a number from 1 on, not {text!r}")
        self._rows_max = None if text is None else int(text)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"handle": self.source().shape.handle, "after": str(self.start())}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable() if self._rows_max is None else ReadMaxRows(self._rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._stop = str(self.source().end())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        source, after = self._same(start), LogOffset.parse(start["after"])
        end = source.advance(after, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        if self._stop is not None:
            end = max(after, min(end, LogOffset.parse(self._stop)))
        return {"handle": start["handle"], "after": str(end)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        source = self._same(start)
        return self.parts(source, LogOffset.parse(start["after"]), LogOffset.parse(end["after"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self.rows(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the log's leases are what holds rows."""

    def _same(self, offset: Mapping[str, Any]) -> LogSource:
        """The handle with which the query began: a successor's rows are no continuation."""
        source, after = _opened(self._options, str(offset["handle"])), str(offset["after"])
        if after != str(self.start()):  # where a query begins is its own matter; what it goes on from was there
            source.refuse_step_back(LogOffset.parse(after))
        return source
