"""The commands `shapelog shapes ..`: add, list, show and remove shapes with a name, through a running server."""

from typing import Annotated, Any

import typer

from cdc.commands.connection import DEFAULT_URL, Secret, Url

shapes = typer.Typer(rich_markup_mode=None, invoke_without_command=True)

Shape = Annotated[str, typer.Argument(metavar="SHAPE", help="A name or handle.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print facts as JSON.")]


@shapes.callback()
def shapes_help(context: typer.Context) -> None:
    """Add, list, show and remove shapes of a running server."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@shapes.command()
def add(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table, as SQL names it.", show_default=False)],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What it is called.", show_default="the table's name")
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Which rows; $1, $2 .. are parameters.", show_default="all")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="VALUE", help="The next parameter's value.", show_default=False)
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="Which columns, with the key.", show_default="all")
    ] = None,
    replica: Annotated[
        str | None, typer.Option(metavar="MODE", help="full: whole rows, before and after.", show_default="default")
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="changes_only: without the rows that are there.", show_default="full"),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until its rows are copied.")] = True,
    url: Url = DEFAULT_URL,
    secret: Secret = None,
    as_json: AsJson = False,
) -> None:
    """Add a shape, and keep it until it is removed. Asked for again, it is the same one.

    \b
      shapelog shapes add orders
      shapelog shapes add orders --name open --where 'state = $1' --param open --columns id,state
      shapelog shapes add audit --log changes_only --no-wait
    """  # noqa: D301 - typer wants the control character itself
    from cdc.admin_client import AdminClient
    from cdc.errors import AnswerRefused
    from cdc.output import print_json
    from cdc.shapes_output import birth_progress, birth_words, print_field_errors

    addition: dict[str, Any] = {"table": table, "name": name, "where": where, "params": param or [], "wait": wait}
    addition |= {"columns": columns, "replica": replica, "log": log}
    told: dict[str, Any] = {}
    try:
        with AdminClient(url, secret) as client, birth_progress() as bar:
            for told in client.add(addition):
                if "birth" in told and wait:
                    bar.show(told["birth"])
    except AnswerRefused as error:
        print_field_errors(error)
        raise
    if as_json:
        print_json(told)
    elif "shape" in told:
        shape = told["shape"]
        typer.echo(f"{shape['name']}  {shape['handle']}  {shape['rows'] or 0:,} rows")
    else:
        typer.echo(f"{told['birth']['name']}: {birth_words(told['birth'])}")


@shapes.command("list")
def list_shapes(url: Url = DEFAULT_URL, secret: Secret = None, as_json: AsJson = False) -> None:
    """List the shapes that live, and those that are being born.

    \b
      shapelog shapes list
      shapelog shapes list --json
    """  # noqa: D301 - typer wants the control character itself
    from cdc.admin_client import AdminClient
    from cdc.output import print_json
    from cdc.shapes_output import print_shapes

    with AdminClient(url, secret) as client:
        found = client.shapes()
    if as_json:
        print_json(found)
    else:
        print_shapes(found["shapes"], found["births"])


@shapes.command()
def show(shape: Shape, url: Url = DEFAULT_URL, secret: Secret = None, as_json: AsJson = False) -> None:
    """Show a shape: what it is, how far it is, and why it ended, if it did.

    \b
      shapelog shapes show orders
    """  # noqa: D301 - typer wants the control character itself
    from cdc.admin_client import AdminClient
    from cdc.output import print_json
    from cdc.shapes_output import print_shape

    with AdminClient(url, secret) as client:
        found = client.shape(shape)
    if as_json:
        print_json(found)
    else:
        print_shape(found)


@shapes.command()
def remove(shape: Shape, url: Url = DEFAULT_URL, secret: Secret = None, as_json: AsJson = False) -> None:
    """Remove a shape, with its log; readers of it are told to begin anew. Its name is free at once.

    \b
      shapelog shapes remove orders
    """  # noqa: D301 - typer wants the control character itself
    from cdc.admin_client import AdminClient
    from cdc.output import print_json

    with AdminClient(url, secret) as client:
        removed = client.remove(shape)
    if as_json:
        print_json({"removed": removed})
    else:
        typer.echo(f"removed {removed}")
