"""The commands `shapelog config ..`: which settings there are, what they are, and who says so."""

from typing import Annotated

import typer

config = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


@config.callback()
def config_help(context: typer.Context) -> None:
    """Show what the program is told, and where each value comes from."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@config.command(context_settings={"ignore_unknown_options": True})
def show(
    context: typer.Context,
    flags: Annotated[
        list[str] | None,
        typer.Argument(metavar="FLAGS", help="Flags of `shapelog serve`, to see what holds then.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts as JSON.")] = False,
) -> None:
    """Show each setting, its value, and where it comes from: a flag, a variable, the file, or the default.

    Secrets are masked. Each setting is also an option of the commands that need it, and a variable: `port` is --port
    and SHAPELOG_PORT.

    \b
      shapelog config show
      shapelog config show --json
      shapelog --config other.toml config show --port 4000
    """  # noqa: D301 - typer wants the control character itself
    import os

    from cdc.commands.serve import serve
    from cdc.config.file_text import FileSettings
    from cdc.config.options import flags_in
    from cdc.config.resolved import as_facts, resolve, unknown_variables
    from cdc.output import print_json, print_table
    from cdc.source.connections import printable

    file = context.find_object(FileSettings)
    program = typer.Typer()
    program.command()(serve)
    resolved = resolve(flags_in(typer.main.get_command(program), flags or []), os.environ, file)
    where = next(str(one.value) for one in resolved if one.setting.name == "database-url")
    facts = as_facts(resolved, {"database-url": printable(where)})
    unknown = list(unknown_variables(os.environ))
    if as_json:
        print_json({"file": None if file is None else file.name, "settings": facts, "unknown_variables": unknown})
        return
    rows = [(one["setting"], _word(one["value"]), one["source"]) for one in facts]
    print_table(("setting", "value", "from"), rows)
    typer.echo(f"file: {file.name if file is not None else 'none'}")
    for line in unknown:
        typer.echo(f"shapelog: {line}", err=True)


def _word(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
