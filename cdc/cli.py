"""The command line: what is asked for, and how answers and errors are printed. What commands do is elsewhere.

Exit codes, one table for all commands: 0 done; 1 it was found that something is wrong; 2 it could not be done as asked;
128 + n ended by signal n, so that 130 is Ctrl-C.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from cdc.commands.completion import VARIABLE, completion, prepare
from cdc.commands.config import config
from cdc.commands.doctor import doctor
from cdc.commands.lake import lake
from cdc.commands.materialize import materialize
from cdc.commands.preflight import preflight
from cdc.commands.recover import recover
from cdc.commands.serve import serve
from cdc.commands.shapes import shapes
from cdc.commands.simulate import simulate
from cdc.commands.status import status
from cdc.commands.tail import tail
from cdc.commands.watch import watch
from cdc.config.defaults import read_config
from cdc.config.resolved import CONFIG_VARIABLE
from cdc.errors import ProgramError
from cdc.mistake import Mistake
from cdc.source.errors import SourceError
from shapes.errors import ShapeError
from storage.errors import SharedDiskFault, StorageError

DONE: Final = 0
WRONG: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130

# Help and errors in plain text: they go to files and pipes as often as to terminals.
app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The data folder.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print facts as JSON.")]


@app.callback(invoke_without_command=True)
def shapelog(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", envvar=CONFIG_VARIABLE, help="Settings.", show_default="shapelog.toml"
        ),
    ] = None,
) -> None:
    """Change data capture for Postgres: a durable log for every shape of data that somebody follows.

    `shapelog COMMAND --help` explains a command. Exit codes: 0 done, 1 something is wrong, 2 it could not be done.

    \b
      shapelog doctor -d postgresql://localhost/shop
      shapelog serve -d postgresql://localhost/shop --data-dir data
      shapelog shapes add orders
      shapelog tail orders
    """  # noqa: D301 - typer wants the control character itself
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"shapelog {version_of('shapelog')}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    else:
        read_config(context, config_file)


@app.command()
def demo(
    seconds: Annotated[float, typer.Option("--for", metavar="SECONDS", min=1, max=3600, help="How long.")] = 30,
    no_lake: Annotated[bool, typer.Option("--no-lake", help="Without Parquet, and so without Spark.")] = False,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the logs and the lake here.", show_default="they go")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show all of it at work: a shop on a Postgres of its own, and a server that is killed again and again.

    At the end all rows in Postgres are compared with those that came over HTTP, and with the lake's. Ctrl-C leaves
    nothing behind.

    \b
      shapelog demo
      shapelog demo --for 60 --keep demo
      shapelog demo --for 10 --no-lake --json
    """  # noqa: D301 - typer wants the control character itself
    from cdc.demo.start import run_demo
    from cdc.output import console

    ended = run_demo(console(), seconds, keep, with_lake=not no_lake, as_json=as_json)
    for line in ended.lines:
        typer.echo(line)
    raise typer.Exit(ended.status)


@app.command()
def logs(folder: Folder, as_json: AsJson = False) -> None:
    """List the logs of a data folder.

    UPPER is the end of the last whole transaction on disk; readers see everything up to there. BYTES are those of a
    log's segments and bases; what the journal holds of it is not among them.

    \b
      shapelog logs demo/data
      shapelog logs demo/data --json
    """  # noqa: D301 - typer wants the control character itself
    from dataclasses import asdict

    from cdc.inspect.folder import opened
    from cdc.inspect.listing import listing_of
    from cdc.output import print_json, print_table

    with opened(folder) as disk:
        found = listing_of(disk)
    if as_json:
        faults = {log: str(error) for log, error in found.faults.items()}
        lines = [asdict(line) | {"fault": faults.get(line.log)} for line in found.logs]
        print_json({"logs": lines, "journal_bytes": found.journal_bytes})
    else:
        titles = ("log", "handle", "upper", "segments", "bytes", "bases")
        rows = [
            (one.log, one.handle or "?", one.upper or "?", one.segments, one.bytes, one.bases) for one in found.logs
        ]
        print_table(titles, rows)
        typer.echo(f"{len(rows)} logs; the journal that they share has {found.journal_bytes:,} bytes")
    for log, error in found.faults.items():
        _complain(f"log {log}: {error}")
    raise typer.Exit(REFUSED if found.faults else DONE)


@app.command()
def read(
    folder: Folder,
    log: Annotated[str, typer.Argument(metavar="LOG", help="The log's number or handle.", show_default=False)],
    after: Annotated[
        str, typer.Option(metavar="OFFSET", help="Rows above this position; -1 is from the start.")
    ] = "-1",
    max_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="About so many bytes on the wire.", show_default="all")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the rows of a log, from disk, whether or not somebody writes to it.

    From the start means: from the newest base, then on in the log. With --max-bytes, the position to go on from is
    printed at the end, to standard error. 0 bytes is one row. What is followed and was folded into a newer base
    meanwhile begins anew with that base, and standard error says so.

    \b
      shapelog read demo 2 --max-bytes 2000
      shapelog read demo orders-2 --after 27324416_0
      shapelog read demo 2 --follow --json
    """  # noqa: D301 - typer wants the control character itself
    from cdc.inspect.folder import log_named, opened
    from cdc.inspect.walk import LogRows, rows_as_json, rows_as_text
    from cdc.output import for_a_pipe
    from storage.folder_reader import FolderReader
    from storage.offset import LogOffset

    if follow and max_bytes is not None:
        raise Mistake("--follow has no end, and --max-bytes is one: choose")
    with opened(folder) as disk, for_a_pipe():
        reader = FolderReader(disk)
        rows = LogRows(disk, reader, log_named(reader, log), LogOffset.parse(after))
        for batch in rows.followed(_say_anew) if follow else rows.batches(max_bytes):
            sys.stdout.writelines(f"{line}\n" for line in (rows_as_json if as_json else rows_as_text)(batch))
            sys.stdout.flush()
    if max_bytes is not None:
        typer.echo(f"next: --after {rows.position}", err=True)


def _say_anew() -> None:
    typer.echo("what comes next was folded into a newer base: its rows follow, from the start", err=True)


@app.command()
def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Read every block of every log and check all that can be checked.

    Checksums, rows against headers, and that each log is one chain without a hole. Exit code 1 if there is damage.
    Torn ends of files are none: a crash leaves them, and the writer's next start cuts them.

    \b
      shapelog verify demo
      shapelog verify demo --json
    """  # noqa: D301 - typer wants the control character itself
    from dataclasses import asdict

    from cdc.inspect.folder import opened
    from cdc.output import print_json, print_report, progress_of
    from storage.verify import size_of
    from storage.verify import verify as verify_folder

    with opened(folder) as disk, progress_of(size_of(disk)) as on_bytes:
        report = verify_folder(disk, on_bytes)
    if as_json:
        print_json({"is_sound": not report.damage, **asdict(report)})
    else:
        print_report(report)
    raise typer.Exit(WRONG if report.damage else DONE)


app.command()(serve)
app.add_typer(shapes, name="shapes")
app.command()(status)
app.command()(tail)
app.command()(recover)
app.command()(doctor)
app.command()(preflight)
app.add_typer(config, name="config")
app.command()(completion)
app.command()(simulate)
app.command()(lake)
app.command()(materialize)
app.command()(watch)


_UsageError: Final[Any] = typer.BadParameter.__base__
"""The class of what users mistype. Typer does not export it, and keeps it elsewhere in each of its versions."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point: whatever is raised becomes one line and an exit code."""
    sys.exit(_status(arguments))


def _status(arguments: Sequence[str] | None) -> int:
    prepare()
    typed = sys.argv[1:] if arguments is None else list(arguments)
    try:
        status = typer.main.get_command(app)(
            typed, obj=typed, prog_name="shapelog", standalone_mode=False, complete_var=VARIABLE
        )
    except _UsageError as error:
        command = "shapelog" if error.ctx is None else error.ctx.command_path
        place = "; --config stands before the command" if "--config" in error.format_message() else ""
        mistake = error.format_message().replace("Value error, ", "").removesuffix(".")
        _complain(f"{mistake}{place} (see {command} --help)")
        return REFUSED
    except SharedDiskFault as fault:
        _complain(fault.told_at_the_end)
        return REFUSED
    except (Mistake, ProgramError, ShapeError, SourceError, StorageError) as error:
        _complain(str(error))
        return REFUSED
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return status if isinstance(status, int) else DONE


def _complain(text: str) -> None:
    """One line to standard error, whatever the text has in it."""
    typer.echo("shapelog: " + " ".join(text.split()), err=True)


if __name__ == "__main__":
    main()
