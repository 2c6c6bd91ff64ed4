"""The options of `shapelog serve`: each is a setting, so it is also a variable and a key of the settings file."""

from pathlib import Path
from typing import Annotated

from cdc.config.options import option
from cdc.telemetry.logs import LogFormat

Host = Annotated[str, option("host")]
Port = Annotated[int, option("port")]
ServeSecret = Annotated[str | None, option("secret")]
Insecure = Annotated[bool, option("insecure")]
AllowedHost = Annotated[str | None, option("allowed-host")]
Slot = Annotated[str, option("slot")]
Publication = Annotated[str, option("publication")]
Manual = Annotated[bool, option("manual")]
ShapeIdle = Annotated[float, option("shape-idle")]
LogBytes = Annotated[int, option("log-bytes")]
LogAge = Annotated[float | None, option("log-age")]
LogCompaction = Annotated[bool, option("log-compaction")]
MaxShapes = Annotated[int, option("max-shapes")]
Heartbeat = Annotated[float | None, option("heartbeat")]
AllowDelete = Annotated[bool, option("allow-delete")]
ChunkBytes = Annotated[int, option("chunk-bytes")]
CacheMaxAge = Annotated[int, option("cache-max-age")]
CacheStaleAge = Annotated[int, option("cache-stale-age")]
LongPollTimeout = Annotated[float, option("long-poll-timeout")]
TokenSecret = Annotated[str | None, option("token-secret")]
TokenKeys = Annotated[Path | None, option("token-keys")]
ShownLake = Annotated[Path | None, option("lake")]
LogLines = Annotated[LogFormat, option("log-format")]
WalBudget = Annotated[int | None, option("wal-budget")]
WalAlertAt = Annotated[float, option("wal-alert-at")]
WalPauseAt = Annotated[float, option("wal-pause-at")]
WalEndAt = Annotated[float, option("wal-end-at")]
