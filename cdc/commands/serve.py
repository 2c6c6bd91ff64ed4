"""The command `shapelog serve`: follow a database, keep its shapes' logs, and answer those who ask."""

from typing import Annotated

import typer

from cdc.commands import serve_options as options
from cdc.commands.connection import DatabaseUrl, DataDir
from cdc.telemetry.logs import LogFormat
from shapes.http.limits import LONG_POLL_SECONDS
from shapes.limits import SHAPE_IDLE_SECONDS, SHAPES_MAX
from storage.limits import CHUNK_WIRE_BYTES


def serve(
    data_dir: DataDir,
    database: DatabaseUrl = "",
    host: options.Host = "127.0.0.1",
    port: options.Port = 3000,
    secret: options.ServeSecret = None,
    insecure: options.Insecure = False,
    slot: options.Slot = "shapelog",
    publication: options.Publication = "shapelog",
    manual: options.Manual = False,
    shape_idle: options.ShapeIdle = SHAPE_IDLE_SECONDS,
    max_shapes: options.MaxShapes = SHAPES_MAX,
    heartbeat: options.Heartbeat = None,
    allow_delete: options.AllowDelete = False,
    chunk_bytes: options.ChunkBytes = CHUNK_WIRE_BYTES,
    cache_max_age: options.CacheMaxAge = 60,
    cache_stale_age: options.CacheStaleAge = 300,
    long_poll_timeout: options.LongPollTimeout = LONG_POLL_SECONDS,
    token_secret: options.TokenSecret = None,
    token_keys: options.TokenKeys = None,
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

    app = AppSettings(
        database_url=database,
        data_dir=data_dir,
        slot=slot,
        publication=publication,
        mode="manual" if manual else "managed",
        heartbeat_seconds=heartbeat,
        shape_idle_seconds=shape_idle,
        shapes_max=max_shapes,
        chunk_bytes=chunk_bytes,
    )
    http = HttpSettings(
        allow_delete=allow_delete,
        cache_max_age_seconds=cache_max_age,
        cache_stale_age_seconds=cache_stale_age,
        long_poll_seconds=long_poll_timeout,
    )
    tokens = (token_secret or None, token_keys)
    run(ServeSettings(app, host, port, secret or None, insecure, log_format, http, *tokens))
