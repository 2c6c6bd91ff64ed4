"""A preflight's report for people."""

from collections import Counter
from typing import Any, Final

import typer

from cdc.output import print_table
from cdc.wording import size_words

TABLES_SHOWN: Final = 30
"""A screen; --json has all."""


def show_report(report: dict[str, Any]) -> None:
    """Print it: what was seen, what it will cost, what is missing, and the statements."""
    typer.echo(f"watched for {report['seconds']:g} s")
    if report["why_not_streamed"]:
        typer.echo(f"without a stream, by the server's counts only: {report['why_not_streamed']}")
    _show_tables(report["tables"])
    sizes = report["transactions"]
    if sizes is not None and not sizes["count"]:
        typer.echo("transactions  none that changed these tables ended meanwhile: watch for longer, or in a busy hour")
    elif sizes is not None:
        half, most, largest = (size_words(sizes[name]) for name in ("p50_bytes", "p99_bytes", "largest_bytes"))
        typer.echo(
            f"transactions  {sizes['per_second']:,.1f} a second; half are at most {half}, 99 in 100 at most {most}, "
            f"the largest has {largest} in {sizes['largest_changes']:,} changes"
        )
    _show_predicted(report["predicted"])
    lines = Counter(f"{one['level']:<8}  {one['check']}: {one['text']}" for one in report["findings"])
    for line, count in lines.items():
        typer.echo(line + (f" ({count} times)" if count > 1 else ""))
    if report["sql"]:
        typer.echo("-- what is to be run, in this order:")
    for statement in report["sql"]:
        typer.echo(statement)


def _show_tables(tables: list[dict[str, Any]]) -> None:
    titles = ("table", "inserts", "updates", "deletes", "changes/s", "bytes/s", "large values", "unsent", "identity")
    rows = [
        (
            one["table"] if one["streamed"] else f"{one['table']} (counted)",
            one["inserts"],
            one["updates"],
            one["deletes"],
            f"{one['changes_per_second']:,.1f}",
            size_words(round(one["bytes_per_second"])),
            "?" if one["large_share"] is None else f"{one['large_share']:.0%}",
            "?" if one["updates_unsent"] is None else f"{one['updates_unsent']:,}",
            one["replica_identity"],
        )
        for one in tables[:TABLES_SHOWN]
    ]
    print_table(titles, rows)
    if len(tables) > TABLES_SHOWN:
        typer.echo(f"and {len(tables) - TABLES_SHOWN:,} more: --json has all")
    for one in tables:
        if one["writes_without_identity"]:
            writes = f"{one['writes_without_identity']:,} updates and deletes"
            typer.echo(f"{one['table']}: {writes} would have failed: it has no replica identity to be published with")


def _show_predicted(predicted: dict[str, Any]) -> None:
    size = {name: size_words(value) for name, value in predicted.items() if name.endswith(("_bytes", "_day"))}
    typer.echo(
        f"disk here     {size['first_copy_bytes']} for a first copy of all, then {size['log_bytes_per_day']} a day"
    )
    lost = predicted["slot_lost_after_hours"]
    typer.echo(
        f"disk there    {size['wal_kept_after_an_hour_bytes']} of WAL kept after an hour without us; "
        + ("the server sets no limit" if lost is None else f"the slot is lost after {lost:,.1f} hours")
    )
    most = size_words(predicted["memory_bytes_max"])
    typer.echo(f"memory        about {size['memory_bytes']}, and at most {most} if our disk is slow")
