"""Who may use the server: everybody on this machine, or whoever has the secret. The deciding is pure.

Invariants:
    whatever is not listed as open is guarded, under every spelling of its path
    a comparison takes as long for a wrong secret as for the right one
    the secret goes no further than this in a header: what it looks like misleads nobody behind
"""

import hmac
import ipaddress
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from cdc.errors import AddressOpen
from cdc.http.refusals import problem_response
from shapes.http.problems import Problem, unauthorized

OPEN_PATHS: Final = frozenset({"/", "/v1/health"})
"""For load balancers, which have no secret: they tell nothing but whether the program runs."""

_SCHEME: Final = "bearer "
_PARAMETERS: Final = frozenset({"secret", "api_secret"})


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


def secrets_in_query(query: bytes) -> list[str]:
    """What a request offers in its address."""
    return [value for name, value in parse_qsl(query.decode("ascii", "replace")) if name in _PARAMETERS]


def secrets_in_header(authorization: str | None) -> list[str]:
    """What it offers in its header, if anything."""
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        return []
    # Headers come as if they were latin-1; a secret may have any letters.
    return [authorization[len(_SCHEME) :].strip(" \t").encode("latin-1").decode("utf-8", "replace")]


def has_secret(secret: str, offered: Iterable[str]) -> bool:
    """Whether one of these is the secret."""
    # As bytes, since text that is not ASCII would raise.
    return any(hmac.compare_digest(one.encode("utf-8", "surrogatepass"), secret.encode()) for one in offered)


class Guard:
    """In front of an application: lets nobody in without the secret, if there is one."""

    def __init__(
        self,
        app: ASGIApp,
        secret: str | None,
        refusal_of: Callable[[Scope], Problem | None] = lambda _: unauthorized(),
    ) -> None:
        """`refusal_of`: what those are told who do not bring the secret; None for who needs none."""
        self._app = app
        self._secret = secret
        self._refusal_of = refusal_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._secret:
            if has_secret(self._secret, secrets_in_header(Headers(scope=scope).get("authorization"))):
                scope = _without_authorization(scope)
            elif not (self._is_open(scope) or has_secret(self._secret, secrets_in_query(scope["query_string"]))):
                problem = self._refusal_of(scope)
                if problem is not None:
                    await problem_response(problem)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        # A browser asks what it may ask (OPTIONS) without the secret.
        return scope["path"] in OPEN_PATHS or scope["method"] == "OPTIONS"


def _without_authorization(scope: Scope) -> Scope:
    return {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"authorization"]}
