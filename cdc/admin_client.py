"""How commands ask a running server: requests to its admin API, and its refusals as errors."""

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import orjson

from cdc.errors import AnswerRefused, SecretRefused, ServerSilent
from cdc.limits import ADMIN_CLIENT_SECONDS_MAX


class AdminClient:
    """One server. Raises `ServerSilent`, `SecretRefused`, `AnswerRefused`."""

    def __init__(self, url: str, secret: str | None) -> None:
        self._url = url
        headers = [(b"authorization", f"Bearer {secret}".encode())] if secret else []
        try:
            self._client = httpx.Client(base_url=url, headers=headers, timeout=ADMIN_CLIENT_SECONDS_MAX)
        except (httpx.InvalidURL, ValueError) as error:
            raise ServerSilent(f"{url!r} is no URL: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def status(self) -> dict[str, Any]:
        """Everything."""
        return self._ask("GET", "/v1/admin/status")

    def shapes(self) -> dict[str, Any]:
        """`shapes` and `births`."""
        return self._ask("GET", "/v1/admin/shapes")

    def shape(self, shape: str) -> dict[str, Any]:
        """One, by name or handle."""
        found: dict[str, Any] = self._ask("GET", _path(shape))["shape"]
        return found

    def remove(self, shape: str) -> str:
        """End one; its handle, or its name if it had none yet."""
        removed: str = self._ask("DELETE", _path(shape))["removed"]
        return removed

    def add(self, addition: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What the server tells of the birth, to its end if that was asked for; the last has `shape` or `birth`."""
        with self._named_faults():
            # A birth may wait for others without a word: the time between two lines has no bound.
            timeout = httpx.Timeout(ADMIN_CLIENT_SECONDS_MAX, read=None)
            with self._client.stream("POST", "/v1/admin/shapes", json=addition, timeout=timeout) as answer:
                if answer.is_error:
                    answer.read()
                self._check(answer)
                for line in answer.iter_lines():
                    told = orjson.loads(line)
                    if "error" in told:
                        raise refused(told["error"])
                    yield told

    def request(self, shape: str) -> dict[str, Any] | None:
        """What the shape protocol is asked for a shape with: `handle`, `parameters`, and the `floor` of its base.

        None: its successor is on its way.
        """
        with self._named_faults():
            answer = self._client.get(f"{_path(shape)}/request")
            self._check(answer)
            return None if answer.status_code == httpx.codes.NO_CONTENT else orjson.loads(answer.content)

    def _ask(self, method: str, path: str) -> dict[str, Any]:
        with self._named_faults():
            answer = self._client.request(method, path)
            self._check(answer)
            facts: dict[str, Any] = orjson.loads(answer.content)
            return facts

    @contextlib.contextmanager
    def _named_faults(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise ServerSilent(f"no answer from {self._url}: {str(error) or type(error).__name__}") from None
        except orjson.JSONDecodeError:
            raise ServerSilent(f"{self._url} answers, but not as shapelog does") from None

    def _check(self, answer: httpx.Response) -> None:
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise SecretRefused(f"{self._url} wants its secret")
        if not answer.is_error:
            return
        with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            raise refused(orjson.loads(answer.content)["error"])
        raise ServerSilent(f"{self._url} answers {answer.status_code} {answer.reason_phrase}, and not as shapelog does")


def refused(facts: dict[str, Any]) -> AnswerRefused:
    """The server's error as ours, with each field that is at fault."""
    fields = facts.get("fields") or {}
    error = AnswerRefused("not a shape" if fields else facts["message"], hint=facts["hint"])
    error.reason = facts["code"]
    error.fields = {name: tuple(texts) for name, texts in fields.items()}
    return error


def _path(shape: str) -> str:
    return f"/v1/admin/shapes/{quote(shape, safe='')}"
