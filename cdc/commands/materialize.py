"""The command `shapelog materialize`: bring a lake up to date, once or for ever."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.commands.connection import DataDir
from cdc.config.options import option

if TYPE_CHECKING:
    from storage.lake.materialize import Order, Told


def materialize(
    data_dir: DataDir,
    lake: Annotated[Path, option("lake", help="The lake's folder; made if need be.", show_envvar=True)],
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only shapes of this name; may be given more than once. A lake keeps its choice.",
            show_default="all",
        ),
    ] = None,
    state_only: Annotated[
        bool, typer.Option("--state-only", help="A new lake keeps no history of changes. A lake keeps its choice.")
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="The lake goes over to this data folder from another: its tables begin anew."),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="One version at the present moment, then end.")] = False,
    every: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="Follow, and look so often.", show_default=False)
    ] = None,
    master: Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.")] = "local[2]",
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark's.", show_default=False)
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=65535, help="Answer at /metrics of this port; 0: any.", show_default=False
        ),
    ] = None,
    metrics_host: Annotated[str, typer.Option(metavar="HOST", help="Where that port is.")] = "127.0.0.1",
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each version.")] = False,
) -> None:
    """Turn named shapes into Parquet tables that agree with each other at one moment of the database.

    Each version has all transactions up to a point, in all tables. Nothing is done twice, whenever it is killed.

    \b
      shapelog materialize --data-dir data --lake lake --once
      shapelog materialize --data-dir data --lake lake --every 5
      shapelog materialize --data-dir data --lake lake --shape orders --every 60 --master spark://host:7077
    """  # noqa: D301 - typer wants the control character itself
    from cdc.mistake import Mistake

    if once == (every is not None):
        raise Mistake("say how often: --once, or --every with seconds")
    settings = dict(_setting(text) for text in conf or ())
    with _installed():
        from storage.lake.materialize import Order, check_order
    order = Order(data_dir, lake, tuple(shape) if shape else None, state_only, every, adopt)
    check_order(order)  # before Spark is started, which takes seconds
    _stop_on_signals(order.stop.set)
    with _numbers(order, metrics_host, metrics_port):
        _run(order, master, settings, as_json=as_json)


def _run(order: "Order", master: str, settings: dict[str, str], *, as_json: bool) -> None:
    """In a session of Spark, which ends with it."""
    from cdc.commands.work_bar import WorkBar

    with _installed():
        from storage.lake.errors import SparkGone
        from storage.lake.materialize import materialize as run_materialize
        from storage.lake.spark import LOG_NAME, close_session, open_session, own_folder, runner_of
    try:
        session = open_session(master, settings)
    except SparkGone:
        if order.stop.is_set():  # who ends us has ended Spark's process as well
            return
        raise
    _stop_on_signals(order.stop.set)  # once more: Spark has taken Ctrl-C for itself
    try:
        if not as_json:
            if session.sparkContext.uiWebUrl:
                typer.echo(f"Spark shows its work at {session.sparkContext.uiWebUrl}", err=True)
            typer.echo(f"Spark's own log is {own_folder() / LOG_NAME}", err=True)
        bar = None if as_json else WorkBar()
        run_materialize(order, runner_of(session, bar), _teller(order, as_json=as_json))
    finally:
        close_session(session)


@contextmanager
def _installed() -> Iterator[None]:
    """Packages that only the lake needs are imported inside."""
    from storage.lake.errors import LakeNotInstalled

    try:
        yield
    except ImportError as error:
        raise LakeNotInstalled(f"a package is missing: {error.name}") from None


def _numbers(order: "Order", host: str, port: int | None) -> AbstractContextManager[object]:
    """The port for metrics, if one is wanted."""
    if port is None:
        return nullcontext()
    from cdc.telemetry.lake_metrics import lake_metrics_served

    return lake_metrics_served(order.data, order.lake, order.metrics, host, port)


def _setting(text: str) -> tuple[str, str]:
    from cdc.mistake import Mistake

    key, equals, value = text.partition("=")
    if not (key and equals):
        raise Mistake(f"--conf takes KEY=VALUE, and {text!r} is not")
    return key, value


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """The step under way is finished; a second signal ends it at once, which harms nothing."""
    import signal

    def once(number: int, _: object) -> None:
        stop()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, once)


def _teller(order: "Order", *, as_json: bool) -> Callable[["Told"], None]:
    """A line for each version."""
    import orjson

    from cdc.source.lsn import format_lsn

    def tell(told: "Told") -> None:
        version = told.step.version
        if as_json:
            line = {
                "version": None if version is None else version.number,
                "lsn": None if version is None else version.lsn,
                "rows": told.step.rows,
                "seconds": round(told.seconds, 3),
                "trigger": told.step.trigger,
                "waits_for": told.step.waits_for,
            }
            typer.echo(orjson.dumps(line).decode())
        elif version is None and order.metrics.version is None:
            typer.echo(
                "nothing yet: there is no shape with a name (`shapelog shapes add` makes one),"
                " or one was added and not confirmed yet, which takes seconds"
            )
        elif version is None:
            typer.echo("nothing new")
        else:
            typer.echo(
                f"version {version.number} at {format_lsn(version.lsn)}: {told.step.rows:,} changes"
                f" in {len(version.tables)} tables, {told.seconds:.2f} s"
            )

    return tell
