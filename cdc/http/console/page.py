"""The console's page: files of this package, read once, given to everybody who asks.

The page stands before the guard: a browser cannot send the secret for a style sheet, and the files are the same for all
and say nothing of this server. What the page shows it asks of the admin API, with the secret that its user types in.

Invariants:
    only a path that is in the table is answered here: no request leads to the disk
    every answer forbids scripts, styles, pictures and requests of any other origin, and every inline one
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

CONSOLE_PATH: Final = "/console"

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Asked for again each time: a console of an older version beside a newer server would mislead.
    "cache-control": "no-cache",
}

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file and the headers it is sent with."""

    body: bytes
    headers: Mapping[str, str]


def page_files() -> dict[str, PageFile]:
    """All files by their paths; the page itself under CONSOLE_PATH, with and without a slash."""
    found = {}
    for entry in files(__package__).joinpath("static").iterdir():
        kind = _TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None:
            body = entry.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[entry.name] = PageFile(body, _HEADERS | {"content-type": kind, "etag": tag})
    index = found.pop("index.html")
    paths = {f"{CONSOLE_PATH}/{name}": file for name, file in found.items()}
    return paths | dict.fromkeys((CONSOLE_PATH, f"{CONSOLE_PATH}/"), index)


class ConsolePage:
    """In front of an application: answers for the page's files, and passes on all else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._files = page_files()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        file = self._files.get(scope["path"]) if scope["type"] == "http" else None
        if file is None or scope["method"] not in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        if Headers(scope=scope).get("if-none-match") == file.headers["etag"]:
            answer = Response(status_code=304, headers=file.headers)
        else:
            answer = Response(file.body, headers=file.headers)
        await answer(scope, receive, send)
