"""The command `shapelog serve`: follow a database, keep its shapes' logs, and answer those who ask."""

from pathlib import Path
from typing import Annotated

import typer

from cdc.commands.connection import DatabaseUrl, DataDir
from cdc.telemetry.logs import LogFormat
from shapes.http.limits import LONG_POLL_SECONDS
from shapes.limits import SHAPE_IDLE_SECONDS, SHAPES_MAX
from storage.limits import CHUNK_WIRE_BYTES


def serve(
    data_dir: DataDir,
    database: DatabaseUrl = "",
    host: Annotated[str, typer.Option(envvar="SHAPELOG_HOST", help="Listen here.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="SHAPELOG_PORT", min=0, max=65535, help="0 is any free one.")] = 3000,
    secret: Annotated[
        str | None,
        typer.Option(metavar="TEXT", envvar="SHAPELOG_SECRET", help="Ask everybody for it.", show_default=False),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", envvar="SHAPELOG_INSECURE", help="Listen to strangers without a secret.")
    ] = False,
    slot: Annotated[
        str, typer.Option(metavar="NAME", envvar="SHAPELOG_SLOT", help="The replication slot.")
    ] = "shapelog",
    publication: Annotated[
        str, typer.Option(metavar="NAME", envvar="SHAPELOG_PUBLICATION", help="The publication.")
    ] = "shapelog",
    manual: Annotated[
        bool, typer.Option("--manual", envvar="SHAPELOG_MANUAL", help="Alter nothing on the server: say what to run.")
    ] = False,
    shape_idle: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", envvar="SHAPELOG_SHAPE_IDLE", min=1, help="End shapes without a name after so long."
        ),
    ] = SHAPE_IDLE_SECONDS,
    max_shapes: Annotated[
        int, typer.Option(metavar="N", envvar="SHAPELOG_MAX_SHAPES", min=1, help="Shapes that live at a time.")
    ] = SHAPES_MAX,
    heartbeat: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            envvar="SHAPELOG_HEARTBEAT",
            min=0.1,
            help="Commit something so often, for a quiet database on a busy server.",
            show_default="never",
        ),
    ] = None,
    allow_delete: Annotated[
        bool, typer.Option("--allow-delete", envvar="SHAPELOG_ALLOW_DELETE", help="Let requests end shapes.")
    ] = False,
    chunk_bytes: Annotated[
        int,
        typer.Option(metavar="BYTES", envvar="SHAPELOG_CHUNK_BYTES", min=1000, help="Of an answer, for new shapes."),
    ] = CHUNK_WIRE_BYTES,
    cache_max_age: Annotated[
        int,
        typer.Option(metavar="SECONDS", envvar="SHAPELOG_CACHE_MAX_AGE", min=0, help="Caches keep answers so long."),
    ] = 60,
    cache_stale_age: Annotated[
        int,
        typer.Option(
            metavar="SECONDS", envvar="SHAPELOG_CACHE_STALE_AGE", min=0, help="And so long while they ask again."
        ),
    ] = 300,
    long_poll_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", envvar="SHAPELOG_LONG_POLL_TIMEOUT", min=0.1, max=40, help="Hold live requests so long."
        ),
    ] = LONG_POLL_SECONDS,
    token_secret: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", envvar="SHAPELOG_TOKEN_SECRET", help="Shape tokens are signed with it.", show_default=False
        ),
    ] = None,
    token_keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", envvar="SHAPELOG_TOKEN_KEYS", help="Or with keys of this JWKS file.", show_default=False
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(envvar="SHAPELOG_LOG_FORMAT", help="Events, on standard error.")
    ] = LogFormat.TEXT,
) -> None:
    """Follow a Postgres database: keep a durable log for every shape, and serve them over HTTP.

    SIGTERM or Ctrl-C ends it within 5 seconds, with exit code 0. Exit code 2 says that it refuses to go on, since
    changes would be lost: the line tells which command mends it.

    \b
      shapelog serve -d postgresql://localhost/shop --data-dir data
      shapelog serve --data-dir data --host 0.0.0.0 --secret "$SECRET" --log-format json
    """  # noqa: D301 - typer wants the control character itself
    from cdc.app import AppSettings
    from cdc.serve import ServeSettings, run
    from shapes.http.settings import HttpSettings

    run(
        ServeSettings(
            AppSettings(
                database_url=database,
                data_dir=Path(data_dir),
                slot=slot,
                publication=publication,
                mode="manual" if manual else "managed",
                heartbeat_seconds=heartbeat,
                shape_idle_seconds=shape_idle,
                shapes_max=max_shapes,
                chunk_bytes=chunk_bytes,
            ),
            host=host,
            port=port,
            secret=secret or None,
            insecure=insecure,
            log_format=log_format,
            http=HttpSettings(
                allow_delete=allow_delete,
                cache_max_age_seconds=cache_max_age,
                cache_stale_age_seconds=cache_stale_age,
                long_poll_seconds=long_poll_timeout,
            ),
            token_secret=token_secret or None,
            token_keys=token_keys,
        )
    )
