"""The command `shapelog serve`: follow a database, keep its shapes' logs, and answer those who ask."""

from cdc.commands import serve_options as options
from cdc.commands.connection import DatabaseUrl, DataDir
from cdc.config.options import default
from cdc.telemetry.logs import LogFormat


def serve(
    data_dir: DataDir,
    database: DatabaseUrl = "",
    host: options.Host = default("host"),
    port: options.Port = default("port"),
    secret: options.ServeSecret = default("secret"),
    insecure: options.Insecure = default("insecure"),
    allowed_host: options.AllowedHost = default("allowed-host"),
    slot: options.Slot = default("slot"),
    publication: options.Publication = default("publication"),
    manual: options.Manual = default("manual"),
    shape_idle: options.ShapeIdle = default("shape-idle"),
    max_shapes: options.MaxShapes = default("max-shapes"),
    log_bytes: options.LogBytes = default("log-bytes"),
    log_age: options.LogAge = default("log-age"),
    log_compaction: options.LogCompaction = default("log-compaction"),
    heartbeat: options.Heartbeat = default("heartbeat"),
    allow_delete: options.AllowDelete = default("allow-delete"),
    chunk_bytes: options.ChunkBytes = default("chunk-bytes"),
    cache_max_age: options.CacheMaxAge = default("cache-max-age"),
    cache_stale_age: options.CacheStaleAge = default("cache-stale-age"),
    long_poll_timeout: options.LongPollTimeout = default("long-poll-timeout"),
    token_secret: options.TokenSecret = default("token-secret"),
    token_keys: options.TokenKeys = default("token-keys"),
    wal_budget: options.WalBudget = default("wal-budget"),
    wal_alert_at: options.WalAlertAt = default("wal-alert-at"),
    wal_pause_at: options.WalPauseAt = default("wal-pause-at"),
    wal_end_at: options.WalEndAt = default("wal-end-at"),
    lake: options.ShownLake = default("lake"),
    log_format: options.LogLines = LogFormat.TEXT,
) -> None:
    """Follow a Postgres database: keep a durable log for every shape, and serve them over HTTP.

    SIGTERM or Ctrl-C ends it within 5 seconds, with exit code 0. Exit code 2 says that it refuses to go on, since
    changes would be lost: the line tells which command mends it.

    \b
      shapelog serve -d postgresql://localhost/shop --data-dir data
      shapelog serve --data-dir data --host 0.0.0.0 --secret "$SECRET" --log-format json
    """  # noqa: D301 - typer wants the control character itself
    from cdc.app import AppSettings
    from cdc.insurance.ladder import Terms
    from cdc.serve import ServeSettings, run
    from shapes.http.settings import HttpSettings
    from storage.limits import MIB

    app = AppSettings(
        database_url=database,
        data_dir=data_dir,
        slot=slot,
        publication=publication,
        mode="manual" if manual else "managed",
        heartbeat_seconds=heartbeat,
        shape_idle_seconds=shape_idle,
        shapes_max=max_shapes,
        log_bytes_kept=log_bytes,
        log_age_seconds=log_age,
        log_compaction=log_compaction,
        chunk_bytes=chunk_bytes,
    )
    http = HttpSettings(
        allow_delete=allow_delete,
        cache_max_age_seconds=cache_max_age,
        cache_stale_age_seconds=cache_stale_age,
        long_poll_seconds=long_poll_timeout,
    )
    budget = None if wal_budget is None else wal_budget * MIB
    insurance = Terms(budget, wal_alert_at / 100, wal_pause_at / 100, wal_end_at / 100)
    access = (host, port, secret or None, insecure, log_format, http, token_secret or None, token_keys)
    run(ServeSettings(app, *access, insurance=insurance, allowed_hosts=allowed_host, lake=lake))
