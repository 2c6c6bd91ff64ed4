"""The command `shapelog lake`: what a lake has, and what of it can go."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cdc.config.options import option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.lake.lake_reader import Lake, LakeTable, LakeVersion
    from storage.lake.loads import Load


class Action(StrEnum):
    """What is asked of a lake."""

    VERSIONS = "versions"
    SHOW = "show"
    FILES = "files"
    READ = "read"
    EXPORT = "export"
    COMPACT = "compact"
    VACUUM = "vacuum"


OF_TABLE: Final = (Action.FILES, Action.READ, Action.EXPORT)
"""Those that want a table."""
OF_VERSION: Final = (Action.SHOW, *OF_TABLE)
"""Those that look at one version."""
_MEANT_FOR: Final = {
    "table": OF_TABLE,
    "version": OF_VERSION,
    "as_of": OF_VERSION,
    "side": OF_TABLE,
    "limit": (Action.READ,),
    "to": (Action.EXPORT,),
    "keep": (Action.VACUUM,),
}
"""What means nothing to other actions. Options for folders do no harm there: they are settings as well."""


def lake(
    context: typer.Context,
    action: Annotated[
        Action,
        typer.Argument(
            metavar="ACTION",
            help="versions: list them. show: the tables of one. files: the files of one table. read: its first rows."
            " export: all of them, in one file. compact: join small files, as a new version."
            " vacuum: remove what only old versions need.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help="The lake's folder, unless --lake says it.", show_default=False),
    ] = None,
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="For files, read, export.", show_default=False)
    ] = None,
    lake_folder: Annotated[Path | None, option("lake", help="The lake's folder.", show_envvar=True)] = None,
    data_dir: Annotated[Path | None, option("data-dir", help="For compact: the data folder.", show_envvar=True)] = None,
    version: Annotated[
        int | None, typer.Option(metavar="N", help="A version by its number.", show_default="the newest")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="The newest version up to an LSN (0/16B3748) or a time.", show_default=False),
    ] = None,
    side: Annotated[str, typer.Option(metavar="SIDE", help="For those: state or changes.")] = "state",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="For read: so many rows.")] = 10,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For export: .parquet, .csv or .jsonl.", show_default=False),
    ] = None,
    keep: Annotated[int, typer.Option(metavar="N", min=1, help="For vacuum: so many versions stay.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts as JSON.")] = False,
) -> None:
    """Look at a lake: its versions, their tables, a table's files.

    The files of a table are plain Parquet, and those of one version belong together.

    \b
      shapelog lake versions lake
      shapelog lake show lake --as-of 0/16B3748
      shapelog lake files lake orders --side changes
      shapelog lake read lake orders --limit 3
      shapelog lake export lake orders --to orders.csv --version 7
      shapelog lake compact lake --data-dir data
      shapelog lake vacuum --lake lake --keep 10
    """  # noqa: D301 - typer wants the control character itself
    from cdc.commands.lake_care import compact, vacuum

    _refuse_what_means_nothing(context, action)
    if action in OF_TABLE and table is None and lake_folder is not None:
        folder, table = None, folder  # the one argument is the table
    opened = _opened(lake_folder if folder is None else Path(folder))
    if action is Action.VACUUM:
        vacuum(opened.root, keep, as_json=as_json)
    elif action is Action.COMPACT:
        compact(opened.root, data_dir, as_json=as_json)
    elif action is Action.VERSIONS:
        _print_lines([_version_line(one) for one in opened.versions()], _no_version(opened), as_json=as_json)
    elif action is Action.SHOW:
        chosen = _chosen(opened, version, as_of)
        lines = [_table_line(chosen, name) for name in chosen.tables]
        nothing = f"version {chosen.number} has no tables: there was no named shape at its LSN"
        _print_lines(_with_facts(chosen, lines) if as_json else lines, nothing, as_json=as_json)
    else:
        _of_table(action, _table(_chosen(opened, version, as_of), table), side, limit, to, as_json=as_json)


def _refuse_what_means_nothing(context: typer.Context, action: Action) -> None:
    """Or somebody would believe that version 7 was compacted, or one table."""
    from cdc.mistake import Mistake

    for name, actions in _MEANT_FOR.items():
        source = context.get_parameter_source(name)
        if action not in actions and source is not None and source.name == "COMMANDLINE":
            what = name.upper() if name == "table" else f"--{name.replace('_', '-')}"
            raise Mistake(f"{what} means nothing to `lake {action}`: it is for {', '.join(actions)}")


def _opened(folder: Path | None) -> "Lake":
    from cdc.mistake import Mistake
    from storage.lake.errors import LakeNotInstalled

    try:
        from storage.lake.lake_reader import open_lake
    except ImportError as error:
        raise LakeNotInstalled(f"a package is missing: {error.name}") from None
    if folder is None:
        raise Mistake("name the lake's folder: shapelog lake ACTION DIR, or --lake")
    return open_lake(folder)


def _table(version: "LakeVersion", name: str | None) -> "LakeTable":
    from cdc.mistake import Mistake

    if name is None:
        raise Mistake("name the table: shapelog lake ACTION DIR TABLE")
    return version.table(name)


def _no_version(opened: "Lake") -> str:
    """What somebody reads who looks too early."""
    how = f"shapelog materialize --data-dir DIR --lake {opened.root} --once"
    if opened.open_cut() is None:
        return f"no version yet: `{how}` makes one, as soon as a shape with a name is ready (`shapelog shapes list`)"
    return f"no version yet: the first is being made. If nobody is at work on it any more, `{how}` finishes it"


def _print_lines(lines: list[dict[str, Any]], nothing: str, *, as_json: bool) -> None:
    """A table; where there is none, a word of that, which is no part of the answer."""
    from cdc.output import print_json, print_table

    if as_json:
        print_json(lines)
    elif lines:
        print_table([*lines[0]], [["-" if cell is None else cell for cell in line.values()] for line in lines])
    else:
        typer.echo(nothing, err=True)


def _of_table(action: Action, table: "LakeTable", side: str, limit: int, to: Path | None, *, as_json: bool) -> None:
    from cdc.commands.lake_rows import export_rows, read_rows
    from cdc.mistake import Mistake
    from cdc.output import print_json
    from storage.lake.errors import NoVersion

    missing = [path for path in table.files(side) if not Path(path).is_file()]
    if missing and action is not Action.FILES:
        raise NoVersion("files of this version are gone: it was retired, or they were removed", first=missing[0])
    if action is Action.READ:
        read_rows(table, side, limit, as_json=as_json)
    elif action is Action.EXPORT:
        if to is None:
            raise Mistake("say where to: --to FILE")
        count = export_rows(table, side, to)
        if as_json:
            print_json({"file": str(to), "rows": count})
        else:
            typer.echo(f"{count:,} rows in {to}")
    elif as_json:
        print_json(table.files(side))
    else:
        for path in (paths := table.files(side)):
            typer.echo(path)
        if not paths:
            typer.echo(f"no files: {side} of {table.name!r} has no rows in this version", err=True)


def _chosen(opened: "Lake", number: int | None, as_of: str | None) -> "LakeVersion":
    from cdc.mistake import Mistake

    if number is not None and as_of is not None:
        raise Mistake("a version has a number or a moment: choose")
    if number is not None:
        return opened.version(number)
    return opened.latest() if as_of is None else opened.as_of(_moment(as_of))


def _moment(text: str) -> Any:  # noqa: ANN401 - a number or a time
    import datetime as dt

    from cdc.mistake import Mistake
    from cdc.source.lsn import parse_lsn

    try:
        return int(parse_lsn(text)) if "/" in text else dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    except ValueError:
        raise Mistake(f"{text!r} is neither an LSN (0/16B3748) nor a time (2026-03-02T08:00:00Z)") from None


def _version_line(version: "LakeVersion") -> dict[str, Any]:
    from cdc.source.lsn import format_lsn

    return {
        "version": version.number,
        "lsn": format_lsn(version.lsn),
        "committed": version.committed_at.isoformat() if version.facts.commit_time else None,
        "tables": len(version.tables),
    }


def _table_line(version: "LakeVersion", name: str) -> dict[str, Any]:
    """Sizes come from the files' footers, so this takes a moment for many files."""
    import pyarrow.parquet as pq

    table = version.table(name)
    line: dict[str, Any] = {"table": name, "generation": table.facts.generation, "upto": str(table.facts.upto)}
    for side in ("state", "changes"):
        files = [path for path in map(Path, table.files(side)) if path.is_file()] if table.facts.side(side) else []
        line |= {f"{side} rows": sum(pq.read_metadata(path).num_rows for path in files)}
        line |= {f"{side} files": len(files), f"{side} bytes": sum(path.stat().st_size for path in files)}
    return line | {"quarantined": table.facts.quarantined}


def _with_facts(version: "LakeVersion", lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What programs want to know as well: how far each table is safe, and what is odd about its folder."""
    from storage.disk import LocalDisk, folder_of
    from storage.lake.loads import read_loads

    with folder_of(LocalDisk(version.root)) as lake:
        loads = read_loads(lake)
    return [line | _table_facts(version.table(line["table"]), version, loads) for line in lines]


def _table_facts(table: "LakeTable", version: "LakeVersion", loads: "Mapping[int, Load]") -> dict[str, Any]:
    from cdc.source.lsn import format_lsn
    from storage.lake.retire import orphans_of

    sides = [side for side in ("state", "changes") if table.facts.side(side)]
    missing = [path for side in sides for path in table.files(side) if not Path(path).is_file()]
    return {
        "version": version.number,
        "version lsn": format_lsn(version.lsn),
        "safe below": None if missing else format_lsn(version.lsn),
        "missing files": missing,
        "orphan files": sum(orphans_of(version.root, table.facts, side, loads) for side in sides),
        "gaps": _gaps(table, missing),
    }


def _gaps(table: "LakeTable", missing: list[str]) -> int:
    """How often a history says that changes are missing; a lake of states only has none to say it."""
    import pyarrow.dataset as ds

    if table.facts.changes is None:
        return 0
    told = [path for path in table.files("changes") if path not in missing]
    return int(ds.dataset(told, table.schema("changes")).count_rows(filter=ds.field("_kind") == "refetch"))
