"""The lake: named shapes as Parquet tables that agree with each other at one LSN. `open_lake` is the reader's door."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.lake.lake_reader import Lake


def open_lake(path: str | Path) -> "Lake":
    """A lake that `shapelog materialize` has made."""
    from storage.lake import lake_reader  # noqa: PLC0415 - Spark's workers need no Delta to cast a column

    return lake_reader.open_lake(path)
