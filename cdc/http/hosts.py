"""By which names the server is asked, where no secret is asked for. The deciding is pure.

A page in somebody's browser may come from a name that its owner lets point at this machine; the browser then takes
server and page for one origin, and lets the page read all answers. Such a request has that name in its header `host`.

Invariants:
    no route is exempt, under no method
    a request without the header passes: browsers send it always
"""

from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from cdc.http.access import is_loopback
from cdc.http.refusals import problem_response
from shapes.http.problems import other_name

OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")
"""What this machine calls itself."""


def allowed_names(host: str, allowed: str | None, secret: str | None) -> frozenset[str] | None:
    """The names that are answered to; None for all. `host`: where we listen; `allowed`: more names, with commas."""
    more = [name_of(name) for name in (allowed or "").split(",") if name.strip()]
    if secret or not (more or is_loopback(host)):
        return None
    return frozenset((*OWN_NAMES, name_of(host), *more))


def name_of(host: str) -> str:
    """A host as one spelling of its name, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    has_port = colon and port.isdigit() and ":" not in name
    return (name if has_port else host).rstrip(".:")


class Hosts:
    """In front of an application: answers nobody who calls us by another name."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        if all(name_of(host) in self._names for host in hosts):
            await self._app(scope, receive, send)
            return
        await problem_response(other_name())(scope, receive, send)
