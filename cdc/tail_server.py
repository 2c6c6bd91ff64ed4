"""Following a shape of a running server, as any of its readers does: by the shape protocol, with our own client.

The protocol knows no names. So the admin API is asked what the named shape is, and the client asks for that; when all
begins anew, the name is looked up again.

Invariants:
    what was told counts until a step says that all begins anew, over every failure of the network or the server
    a name that nobody has is told to be so, and its shape not asked for: the protocol would make it anew
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from cdc.admin_client import AdminClient
from cdc.errors import SecretRefused
from cdc.limits import TAIL_LOOK_SECONDS, TAIL_WAIT_SECONDS_MAX
from cdc.tail import NOW, Moved, Rows, Step
from shapes.client_state import Change, Position
from shapes.client_stream import ShapeStream
from shapes.http.envelope import SHAPE_PATH
from shapes.http.errors import RequestRefused
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset

_UNAUTHORIZED: Final = 401


def server_steps(client: AdminClient, url: str, secret: str | None, shape: str, after: str) -> Iterator[Step]:
    """The steps of a tail, for ever; each request is held until there is something."""
    request = _named(client, shape)
    position = _position(after, request)
    if position is None:
        position = Position()
        yield Moved(request["handle"])
    while True:
        stream = ShapeStream(
            url.rstrip("/") + SHAPE_PATH, token=secret, as_text=True, position=position, **request["parameters"]
        )
        try:
            yield from _until_anew(stream)
        except RequestRefused as refused:
            if refused.facts.get("status") == _UNAUTHORIZED:
                raise SecretRefused(f"{url} wants its secret") from None
            renewed = _named(client, shape)
            if renewed["parameters"] == request["parameters"]:
                raise
            request = renewed  # the table was altered while we asked
        else:
            request = _renewed(client, shape, request, stream.position.handle)
        position = Position()
        yield Moved(request["handle"])


def _position(after: str, request: Mapping[str, Any]) -> Position | None:
    """Where to begin; None if what follows that place was folded into a base, which it belongs to no more."""
    if after == NOW or LogOffset.parse(after) == BEFORE_ALL:
        return Position(after)
    if SNAPSHOT_END < LogOffset.parse(after) < LogOffset.parse(request["floor"]):
        return None
    return Position(after, request["handle"])


def _until_anew(stream: ShapeStream) -> Iterator[Rows]:
    for batch in stream:
        if batch.must_refetch:
            return
        if batch.changes:
            yield Rows([_line(change, stream.position.offset) for change in batch.changes])


def _named(client: AdminClient, shape: str) -> dict[str, Any]:
    """What the shape is that has the name now; waited for while a successor is coming."""
    while (found := client.request(shape)) is None:
        time.sleep(TAIL_LOOK_SECONDS)
    return found


def _renewed(client: AdminClient, shape: str, before: Mapping[str, Any], told: str | None) -> dict[str, Any]:
    """What the shape is now. `told`: the handle that readers were told to go on with, if there was one.

    Where the table was altered, a reader may hear of it before the name has its successor.
    """
    end = time.monotonic() + TAIL_WAIT_SECONDS_MAX
    while (found := _named(client, shape))["handle"] == before["handle"] and told not in {None, before["handle"]}:
        if time.monotonic() > end:
            break
        time.sleep(TAIL_LOOK_SECONDS)
    return found


def _line(change: Change, behind: str) -> str:
    """A row as `shapelog read` prints it. One that was there from the beginning stands where its chunk ends."""
    headers = change.headers
    row: dict[str, Any] = {"offset": behind, "kind": change.operation}
    if "lsn" in headers:
        row["offset"] = f"{headers['lsn']}_{headers['op_position']}"
    if headers.get("txids"):
        row["xid"] = headers["txids"][0]
    row["new"] = change.value
    if change.old_value is not None:
        row["old"] = change.old_value
    return orjson.dumps(row).decode()
