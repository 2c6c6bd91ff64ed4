"""The options of `shapelog serve`. Each is also a variable: SHAPELOG_ and its name in capitals."""

from pathlib import Path
from typing import Annotated, Any

import typer


def setting(name: str, text: str, **more: Any) -> Any:  # noqa: ANN401 - typer's own class is not exported
    """An option of this name, and its variable."""
    variable = "SHAPELOG_" + name.upper().replace("-", "_")
    return typer.Option(f"--{name}", envvar=variable, help=text, **more)


Host = Annotated[str, setting("host", "Listen here.")]
Port = Annotated[int, setting("port", "0 is any free one.", min=0, max=65535)]
ServeSecret = Annotated[str | None, setting("secret", "Ask everybody for it.", metavar="TEXT", show_default=False)]
Insecure = Annotated[bool, setting("insecure", "Listen to strangers without a secret.")]
Slot = Annotated[str, setting("slot", "The replication slot.", metavar="NAME")]
Publication = Annotated[str, setting("publication", "The publication.", metavar="NAME")]
Manual = Annotated[bool, setting("manual", "Alter nothing on the server: say what to run.")]
ShapeIdle = Annotated[
    float, setting("shape-idle", "End shapes without a name after so long.", metavar="SECONDS", min=1)
]
MaxShapes = Annotated[int, setting("max-shapes", "Shapes that live at a time.", metavar="N", min=1)]
Heartbeat = Annotated[
    float | None,
    setting(
        "heartbeat",
        "Commit something so often, for a quiet database on a busy server.",
        metavar="SECONDS",
        min=0.1,
        show_default="never",
    ),
]
AllowDelete = Annotated[bool, setting("allow-delete", "Let requests end shapes.")]
ChunkBytes = Annotated[int, setting("chunk-bytes", "Of an answer, for new shapes.", metavar="BYTES", min=1000)]
CacheMaxAge = Annotated[int, setting("cache-max-age", "Caches keep answers so long.", metavar="SECONDS", min=0)]
CacheStaleAge = Annotated[
    int, setting("cache-stale-age", "And so long while they ask again.", metavar="SECONDS", min=0)
]
LongPollTimeout = Annotated[
    float, setting("long-poll-timeout", "Hold live requests so long.", metavar="SECONDS", min=0.1, max=40)
]
TokenSecret = Annotated[
    str | None, setting("token-secret", "Shape tokens are signed with it.", metavar="TEXT", show_default=False)
]
TokenKeys = Annotated[
    Path | None, setting("token-keys", "Or with keys of this JWKS file.", metavar="FILE", show_default=False)
]
