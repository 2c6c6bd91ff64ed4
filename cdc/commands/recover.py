"""The command `shapelog recover`: what is wrong with a folder and its stream, and the way out of it."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cdc.commands.connection import Database, DataDir, Publication, Slot

if TYPE_CHECKING:  # it would make `shapelog --help` wait for pyarrow
    from cdc.recover.diagnosis import Found, Plan, Trouble

WRONG: Final = 1
"""The exit code of an explanation that found something."""


def recover(
    data_dir: DataDir,
    shapes: Annotated[
        list[str] | None,
        typer.Argument(metavar="SHAPE", help="With --resnapshot: these only, by name or handle.", show_default=False),
    ] = None,
    resnapshot: Annotated[
        bool, typer.Option("--resnapshot", help="Do it: new snapshots, and a new slot if the old one cannot go on.")
    ] = False,
    new_stream: Annotated[
        bool,
        typer.Option("--new-stream", help="A new slot in any case: the old one brings what cannot be taken."),
    ] = False,
    drop_slot: Annotated[
        bool, typer.Option("--drop-slot", help="Drop the slot that is in the way, also if it is not known as ours.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    database: Database = "",
    slot: Slot = "shapelog",
    publication: Publication = "shapelog",
    as_json: Annotated[bool, typer.Option("--json", help="Print facts as JSON.")] = False,
) -> None:
    """Explain what is wrong with a data folder and its stream; with --resnapshot, mend it.

    Without --resnapshot nothing is changed; exit code 1 says that something is wrong. With it, no server may run on
    the folder: start it afterwards, and the shapes with a name come back with new snapshots.

    \b
      shapelog recover --data-dir data -d postgresql://localhost/shop
      shapelog recover --data-dir data --resnapshot
      shapelog recover --data-dir data --resnapshot orders
    """  # noqa: D301 - typer wants the control character itself
    import asyncio

    from cdc.mistake import Mistake
    from cdc.output import print_json
    from cdc.recover.diagnosis import Way, Wish, diagnose, plan
    from cdc.recover.recovery import Place, find, locked
    from cdc.recover.recovery import recover as mend

    if not resnapshot and (shapes or new_stream or drop_slot):
        raise Mistake("SHAPE, --new-stream and --drop-slot say what --resnapshot does: say that too")
    if resnapshot and as_json and not yes:
        raise Mistake("--json is for programs, which cannot be asked: say --yes too")
    place = Place(data_dir, database, slot, publication)
    found = asyncio.run(find(place))
    troubles = diagnose(found)
    if not resnapshot:
        _explain(found, troubles, f"shapelog recover --data-dir {data_dir}", as_json=as_json)
        raise typer.Exit(WRONG if any(trouble.way > Way.NOTHING for trouble in troubles) else 0)
    with locked(data_dir):
        todo = plan(found, Wish(tuple(shapes or ()), new_stream, drop_slot))
        if not yes:
            _ask(troubles, todo, found)
        done = asyncio.run(mend(place, found, todo))
    if as_json:
        print_json({"done": list(done)})
    else:
        typer.echo("\n".join(done))


def _explain(found: "Found", troubles: "Sequence[Trouble]", command: str, *, as_json: bool) -> None:
    from cdc.output import print_json
    from cdc.recover.diagnosis import Way

    listed = [{"code": one.code, "text": one.text, "loss": one.loss, "run": _way_out(one, command)} for one in troubles]
    if as_json:
        print_json({"is_sound": all(one.way is Way.NOTHING for one in troubles), "troubles": listed})
        return
    for one in listed:
        typer.echo(f"[{one['code']}] {one['text']}")
        typer.echo(f"    loss: {one['loss']}")
        if one["run"]:
            typer.echo(f"    run:  {one['run']}")
    if all(one.way is Way.NOTHING for one in troubles):
        unknown = "" if found.server is not None else " in the folder; of the server nothing is known"
        typer.echo(f"nothing has to be recovered{unknown}; the slot is {found.slot!r}")


def _way_out(trouble: "Trouble", command: str) -> str | None:
    from cdc.recover.diagnosis import Way

    if trouble.way is Way.NOTHING:
        return None
    if trouble.code == "slot_exists":
        return f"{command} --resnapshot --drop-slot"
    return f"{command} --resnapshot"


def _ask(troubles: "Sequence[Trouble]", todo: "Plan", found: "Found") -> None:
    from cdc.mistake import Mistake

    for trouble in troubles:
        typer.echo(f"[{trouble.code}] {trouble.text}")
    steps = ["all shapes end" if todo.ends is None else f"these shapes end: {', '.join(todo.ends)}"]
    if todo.sets_aside:
        steps.insert(0, f"{', '.join(todo.sets_aside)} are set aside")
    if todo.drops_slot:
        steps.append(f"the slot {found.slot!r} is dropped")
    if todo.forgets_stream:
        steps.append("the next start makes a new slot")
    typer.echo("; ".join(steps))
    if not sys.stdin.isatty():
        raise Mistake("nobody is there to be asked: say --yes")
    typer.confirm("Do it?", abort=True)
