"""Who may use the server: everybody on this machine, or whoever has the secret. The deciding is pure.

Invariants:
    whatever is not listed as open is guarded, under every spelling of its path
    a comparison takes as long for a wrong secret as for the right one
"""

import hmac
import ipaddress
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from cdc.errors import AddressOpen

OPEN_PATHS: Final = frozenset({"/", "/v1/health"})
"""For load balancers, which have no secret: they tell nothing but whether the program runs."""

_SCHEME: Final = "bearer "
_PARAMETERS: Final = frozenset({"secret", "api_secret"})
_REFUSED: Final = "Unauthorized - Invalid API secret"


def check_address(host: str, secret: str | None, *, insecure: bool) -> None:
    """Refuse to listen where strangers are, without a secret."""
    if not (secret or insecure or is_loopback(host)):
        raise AddressOpen(f"{host} can be reached from other machines, and no secret is set")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def secrets_of(authorization: str | None, query: bytes) -> list[str]:
    """What a request offers."""
    offered = [value for name, value in parse_qsl(query.decode("ascii", "replace")) if name in _PARAMETERS]
    if authorization is not None and authorization.lower().startswith(_SCHEME):
        # Headers come as if they were latin-1; a secret may have any letters.
        offered.append(authorization[len(_SCHEME) :].strip(" \t").encode("latin-1").decode("utf-8", "replace"))
    return offered


def has_secret(secret: str, offered: Iterable[str]) -> bool:
    """Whether one of these is the secret."""
    # As bytes, since text that is not ASCII would raise.
    return any(hmac.compare_digest(one.encode("utf-8", "surrogatepass"), secret.encode()) for one in offered)


class Guard:
    """In front of an application: lets nobody in without the secret, if there is one."""

    def __init__(self, app: ASGIApp, secret: str | None, admits: Callable[[Scope], bool] = lambda _: False) -> None:
        """`admits` says who needs no secret, as whoever brings something else that is as good."""
        self._app = app
        self._secret = secret
        self._admits = admits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._secret and not self._is_open(scope):
            offered = secrets_of(Headers(scope=scope).get("authorization"), scope["query_string"])
            if not (has_secret(self._secret, offered) or self._admits(scope)):
                refusal = JSONResponse({"message": _REFUSED}, 401, headers={"cache-control": "no-store"})
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        # A browser asks what it may ask (OPTIONS) without the secret.
        return scope["path"] in OPEN_PATHS or scope["method"] == "OPTIONS"
