"""Care for a lake's files on demand: small ones are joined, old ones go. A writer that follows does both by itself."""

import time
from dataclasses import asdict
from pathlib import Path

import typer

from cdc.mistake import Mistake
from cdc.output import print_json


def vacuum(root: Path, keep: int, *, as_json: bool) -> None:
    """Remove what only old versions need, and say what that was."""
    from storage.lake.limits import VERSION_AGE_SECONDS_MIN
    from storage.lake.retire import retire

    done = retire(root, now=time.time(), kept=keep)
    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(
            f"removed: {done.versions:,} versions, {done.files:,} files of {done.bytes:,} bytes,"
            f" {done.commits:,} files of Delta logs;"
            f" versions of the last {VERSION_AGE_SECONDS_MIN / 60:g} minutes stay"
        )


def compact(root: Path, data_dir: Path | None, *, as_json: bool) -> None:
    """Join what is small, as a new version with the same rows, and say what became of it."""
    from cdc.commands.work_bar import WorkBar
    from storage.lake.materialize import Order, writing
    from storage.lake.spark import run_here, runner_here

    if data_dir is None:
        raise Mistake("a version is made, so say where the data folder is: --data-dir")
    before = _files(root)
    with writing(Order(data_dir, root), run_here if as_json else runner_here(WorkBar())) as writer:
        version = writer.compact().version
    number = None if version is None else version.number
    after = _files(root, number)
    if as_json:
        print_json({"version": number, "files_before": before, "files_after": after})
    elif number is None:
        typer.echo("another writer was faster: try again")
    else:
        typer.echo(f"version {number}: {before:,} files became {after:,}; `vacuum` removes the old ones in time")


def _files(root: Path, number: int | None = None) -> int:
    """Of a version; the newest if none is named."""
    from storage.lake.lake_reader import open_lake

    opened = open_lake(root)
    version = opened.latest() if number is None else opened.version(number)
    tables = [version.table(name) for name in version.tables]
    return sum(len(one.files(side)) for one in tables for side in ("state", "changes") if one.facts.side(side))
