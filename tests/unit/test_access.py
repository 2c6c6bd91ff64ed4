"""Who may use the server: what a request offers, what it is told, and which hosts only this machine reaches."""

from urllib.parse import quote

import jwt
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cdc.errors import AddressOpen
from cdc.http.access import Guard, check_address, has_secret, is_loopback, secrets_in_header, secrets_in_query
from shapes.http.connections import Connections
from shapes.http.tokens import ShapeTokens
from tests.memory_socket import MemorySocket

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nobody listens there
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


@given(TEXTS, st.lists(TEXTS))
def test_only_the_secret_opens(secret: str, others: list[str]) -> None:
    assert has_secret(secret, [*others, secret])
    assert has_secret(secret, others) == (secret in others)


@given(TEXTS)
def test_a_secret_of_any_letters_arrives_in_the_query(secret: str) -> None:
    query = f"table=items&secret={quote(secret, safe='')}".encode()
    assert secrets_in_query(query) == [secret]


@given(TEXTS.map(str.strip).filter(bool))
def test_a_secret_of_any_letters_arrives_in_the_header(secret: str) -> None:
    assert secrets_in_header(f"bearer {secret.encode().decode('latin-1')}") == [secret.strip()]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (b"", []),
        (b"secret=two&api_secret=three&other=four", ["two", "three"]),
        (b"secret=", []),
        (b"secret=%ff%fe", ["\ufffd\ufffd"]),
        (b"SECRET=x", []),
    ],
)
def test_what_an_address_offers(query: bytes, found: list[str]) -> None:
    assert secrets_in_query(query) == found


@pytest.mark.parametrize(
    ("authorization", "found"),
    [
        (None, []),
        ("Basic dXNlcjpzZWNyZXQ=", []),
        ("Bearer one", ["one"]),
        ("bEARER  one\t", ["one"]),
        ("Bearer ", [""]),
    ],
)
def test_what_a_header_offers(authorization: str | None, found: list[str]) -> None:
    assert secrets_in_header(authorization) == found


SIGNING = "thirty-two-bytes-of-a-signing-key"
DOTTED = "a.secret.with-two-dots"
LATE = jwt.encode({"table": "items", "exp": 1}, SIGNING, "HS256")
VALID = jwt.encode({"table": "items", "exp": 2**40}, SIGNING, "HS256")
NOT_IT = "Unauthorized - Invalid API secret"
TOO_LATE = "Unauthorized - Invalid shape token: it has expired"
NOT_OURS = "Unauthorized - Invalid shape token: its signature is not by a key of ours"


@pytest.mark.parametrize(
    ("target", "authorization", "told"),
    [
        ("/v1/shape", f"Bearer {DOTTED}", None),
        ("/v1/shape", f"Bearer {VALID}", None),
        (f"/v1/shape?token={VALID}", None, None),
        (f"/v1/shape?secret={DOTTED}", f"Bearer {LATE}", None),
        ("/v1/shape", None, NOT_IT),
        ("/v1/shape?secret=wrong", None, NOT_IT),
        ("/v1/shape", "Bearer wrong", NOT_IT),
        (f"/v1/shape?token={LATE}", None, TOO_LATE),
        ("/v1/shape", f"Bearer {LATE}", TOO_LATE),
        ("/v1/shape", f"Bearer {DOTTED}r", NOT_OURS),
        (f"/v1/shape?token={VALID}&a=%ff", None, NOT_IT),
        (f"/v1/admin/status?token={VALID}", None, NOT_IT),
        (f"/v1/admin/status?token={LATE}", None, NOT_IT),
    ],
)
async def test_who_is_let_in_and_what_the_others_are_told(
    target: str, authorization: str | None, told: str | None
) -> None:
    """Behind the guard, the secret is not seen in a header, where it could be taken for a token."""
    seen: list[str | None] = []

    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(Headers(scope=scope).get("authorization"))
        await Response(status_code=204)(scope, receive, send)

    socket = MemorySocket(Connections(Guard(behind, DOTTED, ShapeTokens(SIGNING).refusal_of)))
    line = "" if authorization is None else f"authorization: {authorization}\r\n"
    socket.send(f"GET {target} HTTP/1.1\r\nhost: x\r\n{line}\r\n".encode())
    answer = await socket.answer()
    socket.close()
    await socket.closed.wait()
    if told is None:
        kept = None if authorization is None or DOTTED in authorization else authorization
        assert (answer.status, seen) == (204, [kept])
        return
    assert (answer.status, orjson.loads(answer.body), seen) == (401, {"message": told}, [])
    assert (answer.headers["cache-control"], answer.headers["surrogate-control"]) == ("no-store", "no-store")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "LOCALHOST"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)
    check_address(host, None, insecure=False)


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.168.1.1", "db.example.org", "", "127.0.0.1.example.org"])
def test_other_machines(host: str) -> None:
    assert not is_loopback(host)
    for secret in (None, ""):
        with pytest.raises(AddressOpen):
            check_address(host, secret, insecure=False)
    check_address(host, "secret", insecure=False)
    check_address(host, None, insecure=True)
