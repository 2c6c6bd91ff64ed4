"""Which names a server without a secret answers to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.http.hosts import Hosts, allowed_names, name_of
from shapes.http.connections import Connections
from tests.memory_socket import MemorySocket

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nobody listens there


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:3000", "localhost"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:3000", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("localhost.:80", "localhost"),
        ("a.example:", "a.example"),
        ("", ""),
        ("localhost:80:80", "localhost:80:80"),
        ("evil.example:80@localhost", "evil.example:80@localhost"),
    ],
)
def test_a_name_has_one_spelling(host: str, name: str) -> None:
    assert name_of(host) == name


@pytest.mark.parametrize(
    ("host", "allowed", "secret", "names"),
    [
        ("127.0.0.1", None, None, {"localhost", "127.0.0.1", "::1"}),
        ("127.0.0.7", None, None, {"localhost", "127.0.0.1", "::1", "127.0.0.7"}),
        ("::1", "a.example, B.example:80", None, {"localhost", "127.0.0.1", "::1", "a.example", "b.example"}),
        (EVERYWHERE, "a.example", None, {"localhost", "127.0.0.1", "::1", EVERYWHERE, "a.example"}),
        (EVERYWHERE, None, None, None),
        ("127.0.0.1", None, "secret", None),
        ("127.0.0.1", "a.example", "secret", None),
    ],
)
def test_names_follow_from_the_settings(
    host: str, allowed: str | None, secret: str | None, names: set[str] | None
) -> None:
    assert allowed_names(host, allowed, secret) == names


async def sent_on(scope: object, receive: object, send: object) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[operator]  # as ASGI has it
    await send({"type": "http.response.body"})  # type: ignore[operator]  # as above


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("host: localhost:3000\r\n", 204),
        ("", 204),
        ("host: evil.example:3000\r\n", 403),
        ("host: localhost\r\nhost: evil.example\r\n", 403),
        ("host: localhost.evil.example\r\n", 403),
        ("host:\r\n", 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/v1/health", "/v1/admin/status", "/console", "/v1//shape"])
async def test_who_calls_by_another_name_gets_nothing(method: str, path: str, lines: str, status: int) -> None:
    socket = MemorySocket(Connections(Hosts(sent_on, ["localhost"])))
    socket.send(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode())
    answer = await socket.answer()
    assert answer.status == status
    if status == 403:
        assert b"--allowed-host" in answer.body
        assert (answer.headers["cache-control"], answer.headers["surrogate-control"]) == ("no-store", "no-store")
    socket.close()
    await socket.closed.wait()


@given(st.text(max_size=20))
def test_a_name_that_is_made_up_is_read_without_a_fault(host: str) -> None:
    assert name_of(name_of(host)) is not None
