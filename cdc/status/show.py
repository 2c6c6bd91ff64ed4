"""A status for people: what matters first, then each shape."""

from typing import Any

import typer

from cdc.shapes_output import birth_words, print_shapes


def show_status(status: dict[str, Any]) -> None:
    """Print it."""
    connection = status.get("connection")
    where = status.get("server") or status["data_dir"]
    typer.echo(f"{status['state']}  {where}")
    for name, fault in status.get("faults", {}).items():
        typer.echo(f"DAMAGED  {name}: {fault}")
    if connection is not None and connection["stuck"]:
        typer.echo(f"THE STREAM STANDS STILL  {connection['stuck']}")
    elif connection is not None and connection["look"]:
        typer.echo(f"COMPARING  {connection['look']['explanation']}")
    elif connection is not None and not connection["is_up"]:
        typer.echo(f"NOT CONNECTED  {connection['fault'] or 'no attempt has succeeded yet'}")
    if status.get("disk_fault"):
        typer.echo(f"THE DISK REFUSES  {status['disk_fault']}")
    typer.echo(f"G     {status['explanation'].removeprefix('G is ')}")
    confirmed = status["confirmed_flush_lsn"] or "unknown"
    typer.echo(f"slot  {status['slot']['name']}, confirmed up to {confirmed}: {status['slot']['explanation']}")
    if status["slot"]["holder"]:
        typer.echo(f"      held by {status['slot']['holder']}")
        typer.echo(f"      freed by {status['slot']['freed_by']}")
    insurance = status.get("insurance")
    if insurance and insurance["step"] != "calm" and insurance["explanation"]:
        typer.echo(f"{insurance['step'].upper()}  {insurance['explanation']}")
    for birth in status["births"]:
        typer.echo(f"birth {birth['name'] or birth['table']}: {birth_words(birth)}; since {birth['since']}")
    if status["shapes"]:
        typer.echo()
        print_shapes(status["shapes"], [])
    for shape in status["shapes"]:
        if shape["fault"]:
            typer.echo(f"{shape['name'] or shape['handle']}: {shape['fault']}")
