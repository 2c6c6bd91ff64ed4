"""The rows of a lake's table for people and for other programs: some of them printed, or all of them in one file."""

import datetime as dt
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import typer

from cdc.mistake import Mistake
from cdc.output import print_table

if TYPE_CHECKING:
    from storage.lake.lake_reader import LakeTable

TEXT_CHARACTERS_MAX: Final = 60
"""Of a value in a printed table."""


def read_rows(table: "LakeTable", side: str, limit: int, *, as_json: bool) -> None:
    """Print the first rows; as JSON, an object a line."""
    dataset = table.dataset(side)
    rows = dataset.head(limit).to_pylist()
    if as_json:
        for row in rows:
            typer.echo(_line(row))
    else:
        print_table(dataset.schema.names, [[_shown(value) for value in row.values()] for row in rows])


def export_rows(table: "LakeTable", side: str, target: Path) -> int:
    """Write all rows to a file of a kind that its name says; it comes into being whole. Gives their number."""
    write = _WRITERS.get(target.suffix)
    if write is None:
        raise Mistake(f"the name of the file says what is written: {', '.join(_WRITERS)}, and not {target.name!r}")
    if target.exists():
        raise Mistake(f"{target} is there already")
    if not target.absolute().parent.is_dir():
        raise Mistake(f"the folder of {target} is not there")
    dataset = table.dataset(side)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    count = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in dataset.to_batches():
            count += batch.num_rows
            yield batch

    try:
        write(temporary, dataset.schema, batches())
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _write_parquet(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_csv(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    from pyarrow import csv

    flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
    if nested := [name for name in schema.names if name not in flat and not name.startswith("_")]:
        raise Mistake(f"CSV has no form for {', '.join(nested)}: export to .jsonl or .parquet")
    with csv.CSVWriter(path, pa.schema([schema.field(name) for name in flat])) as writer:
        for batch in batches:
            writer.write_batch(batch.select(flat))


def _write_lines(path: Path, _: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in batches:
            file.writelines(f"{_line(row)}\n" for row in batch.to_pylist())


_WRITERS: Final[dict[str, Callable[[Path, pa.Schema, Iterator[pa.RecordBatch]], None]]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_lines,
}


def _line(row: Any) -> str:  # noqa: ANN401 - whatever a column has
    return orjson.dumps(row, default=_plain).decode()


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a column has
    """What JSON has no form for, as text."""
    match value:
        case bytes():
            return f"\\x{value.hex()}"
        case Decimal():
            return format(value, "f")
        case dt.timedelta() | _:
            return str(value)


def _shown(value: Any) -> str:  # noqa: ANN401 - whatever a column has
    text = "NULL" if value is None else value if isinstance(value, str) else str(_flat(value))
    text = " ".join(text.split())
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[: TEXT_CHARACTERS_MAX - 1]}…"


def _flat(value: Any) -> Any:  # noqa: ANN401 - whatever a column has
    return _line(value) if isinstance(value, (dict, list)) else _plain(value)
