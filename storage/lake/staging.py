"""Folded rows on their way from the tasks that read a log to those that merge ranges of keys: files of Arrow's.

A file has the rows sorted by key, in batches, and says the least key of each; so whoever wants a range reads only the
batches that reach into it. The files are not synced: nobody needs them once the cut is committed, and a cut that was
interrupted is done anew.
"""

import uuid
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa

from storage.lake.limits import STAGED_BATCH_ROWS
from storage.lake.lives import Lives, folded_already
from storage.lake.state import Rewrite
from storage.lake.table_schema import TableSchema

_FACTS: Final = b"shapelog"


def stage(folder: Path, lives: Lives) -> str:
    """Leave folded rows in a file; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4().hex}.arrow"
    rows = pa.Table.from_batches(lives.rows).combine_chunks()
    batches = rows.to_batches(max_chunksize=STAGED_BATCH_ROWS)
    starts = [0, *accumulate(batch.num_rows for batch in batches)][: len(batches)]
    facts = {"lows": lives.keys.take(pa.array(starts, pa.int64())).to_pylist(), "is_emptied": lives.is_emptied}
    schema = lives.rows[0].schema.with_metadata({_FACTS: orjson.dumps(facts)})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as sink:
        for batch in batches:
            sink.write_batch(batch.replace_schema_metadata(schema.metadata))
    return str(path)


def staged(path: str, part: Rewrite, schema: TableSchema) -> Lives:
    """Those of a file's rows that belong to a range."""
    with pa.memory_map(path) as file, pa.ipc.open_file(file) as source:
        facts, columns = orjson.loads(source.schema.metadata[_FACTS]), source.schema.with_metadata(None)
        lows = facts["lows"]
        batches = [
            source.get_batch(number).replace_schema_metadata(None)
            for number, low in enumerate(lows)
            if (part.high is None or low < part.high)
            and (part.low is None or number + 1 == len(lows) or lows[number + 1] > part.low)
        ]
    lives = folded_already(batches or [pa.RecordBatch.from_pylist([], columns)], schema).between(part.low, part.high)
    return replace(lives, is_emptied=facts["is_emptied"])
