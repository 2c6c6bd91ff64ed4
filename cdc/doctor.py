"""The doctor: asks a server, runs the checks, and shows what they found to a person or to a program."""

import functools

import orjson
from rich.markup import escape

from cdc.output import console
from cdc.source.checks import is_fit, run_checks
from cdc.source.connections import connect_once
from cdc.source.facts import Finding, Level
from cdc.source.publication import Mode
from cdc.source.server_facts import read_facts

_STYLES = {Level.OK: "green", Level.INFO: "cyan", Level.WARNING: "yellow", Level.FAULT: "bold red"}


async def examine(conninfo: str, slot: str, publication: str, tables: list[str], mode: Mode) -> list[Finding]:
    """Ask the server, and check the answers."""
    connection = await connect_once(conninfo, "shapelog doctor")
    try:
        return run_checks(await read_facts(connection, slot, publication, tables, mode))
    finally:
        await connection.close()


def as_json_text(findings: list[Finding]) -> str:
    """The findings for programs."""
    listed = [
        {"check": found.check, "level": found.level.value, "text": found.text, "mend": list(found.mend)}
        for found in findings
    ]
    return orjson.dumps({"fit": is_fit(findings), "findings": listed}, option=orjson.OPT_INDENT_2).decode()


def show(findings: list[Finding], server: str) -> None:
    """The findings for a person: what is well in one line, the rest with its statements."""
    say = functools.partial(console().print, soft_wrap=True)
    say(escape(server or "the server of the PG* variables"))
    well = [found.check for found in findings if found.level is Level.OK]
    if well:
        say(f"[green]{'ok':>8}[/]  {', '.join(well)}")
    for found in findings:
        if found.level is not Level.OK:
            label = f"[{_STYLES[found.level]}]{found.level.value:>8}[/]"
            say(f"{label}  {found.check}: {escape(found.text)}")
            for statement in found.mend:
                say(f"{'':10}{escape(statement)}")
    say("fit to be followed" if is_fit(findings) else "not fit to be followed yet")
