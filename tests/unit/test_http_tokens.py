"""Signed shape tokens: what opens, what does not, and that a token is for one shape."""

import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import assume, given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from shapes.http.errors import TokenKeysUnreadable, TokenSecretShort
from shapes.http.limits import TOKEN_LEEWAY_SECONDS
from shapes.http.params import read_query
from shapes.http.problems import Problem
from shapes.http.tokens import ShapeClaims, ShapeTokens
from shapes.identifiers import parse_columns

SECRET = "a secret of thirty-two bytes, or more"  # noqa: S105 - of tests
CLAIMS = {"table": "items", "where": "owner = $1", "params": {"1": "7"}, "columns": "id,v"}


def soon() -> int:
    return int(time.time()) + 60


def claims_of(tokens: ShapeTokens, token: str) -> ShapeClaims | None:
    by_header = tokens.claims_of(Headers({"authorization": f"Bearer {token}"}), {})
    assert tokens.claims_of(Headers({}), {"token": token}) == by_header
    return by_header


def test_a_token_fills_in_its_shape() -> None:
    tokens = ShapeTokens(SECRET)
    claims = claims_of(tokens, jwt.encode({**CLAIMS, "exp": soon()}, SECRET, "HS256"))
    assert claims is not None
    assert claims.applied_to({"offset": "-1", "replica": "full"}) == {
        "offset": "-1",
        "replica": "full",
        "table": "items",
        "where": "owner = $1",
        "columns": "id,v",
        "params[1]": "7",
    }


@pytest.mark.parametrize(
    "asked",
    [
        {"table": "others"},
        {"where": "true"},
        {"columns": "id,v,secret"},
        {"params[1]": "8"},
        {"params[2]": "8"},
        {"params": '{"1":"8"}'},
        {"queryable_columns": "id,v,secret"},
    ],
)
def test_a_token_is_for_no_other_shape(asked: dict[str, str]) -> None:
    claims = claims_of(ShapeTokens(SECRET), jwt.encode({**CLAIMS, "exp": soon()}, SECRET, "HS256"))
    assert claims is not None
    with pytest.raises(Problem) as refused:
        claims.applied_to(asked)
    assert refused.value.status == 403


def test_what_a_token_does_not_claim_cannot_be_asked_for() -> None:
    claims = claims_of(ShapeTokens(SECRET), jwt.encode({"table": "items", "exp": soon()}, SECRET, "HS256"))
    assert claims is not None
    with pytest.raises(Problem):
        claims.applied_to({"where": "id = 1"})


@pytest.mark.parametrize("name", ["columns", "queryable_columns"])
@pytest.mark.parametrize(
    ("claimed", "read"),
    [
        (["id", "v"], ("id", "v")),
        (["id", "v,owner"], ("id", "v,owner")),
        (["id", 'V",owner,"x'], ("id", 'V",owner,"x')),
    ],
)
def test_a_list_of_columns_has_the_names_that_it_has(name: str, claimed: list[str], read: tuple[str, ...]) -> None:
    token = jwt.encode({"table": "items", name: claimed, "exp": soon()}, SECRET, "HS256")
    question = ShapeTokens(SECRET).question(Headers({}), urlencode({"token": token}).encode())
    assert parse_columns(read_query(question)[name]) == read


@pytest.mark.parametrize(
    "token",
    [
        jwt.encode({**CLAIMS, "exp": 1}, SECRET, "HS256"),
        jwt.encode(CLAIMS, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "exp": 2**40}, SECRET + "x", "HS256"),
        jwt.encode({**CLAIMS, "exp": 2**40}, SECRET * 2, "HS512"),
        jwt.encode({**CLAIMS, "exp": 2**40}, "", "none"),
        jwt.encode({"exp": 2**40}, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "table": ["a"], "exp": 2**40}, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "where": None, "exp": 2**40}, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "where": " ", "exp": 2**40}, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "columns": [], "exp": 2**40}, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "columns": ["id", 1], "exp": 2**40}, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "columns": ["id", "\ud800"], "exp": 2**40}, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "columns": None, "exp": 2**40}, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "params": None, "exp": 2**40}, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "exp": float("inf")}, SECRET, "HS256"),
        jwt.encode({**CLAIMS, "exp": 2**40}, SECRET, "HS256", headers={"crit": ["x"], "x": 1}),
        "a.b.c",
        "é.b.c",
        "." * 9000,
    ],
)
def test_what_is_no_token_of_ours_is_refused(token: str) -> None:
    with pytest.raises(Problem) as refused:
        ShapeTokens(SECRET).claims_of(Headers({}), {"token": token})
    assert refused.value.status == 401
    assert token not in str(refused.value.body)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"exp": 1}, "it has expired"),
        ({"nbf": 2**40}, "it is not valid yet"),
        ({"iat": 2**40}, "it is not valid yet"),
        ({"aud": "others"}, "it is for somebody else: it has an aud"),
        ({"columns": ""}, "its claim columns is empty: leave it out to claim all"),
    ],
)
def test_why_a_token_is_refused(more: dict[str, Any], told: str) -> None:
    with pytest.raises(Problem) as refused:
        claims_of(ShapeTokens(SECRET), jwt.encode({**CLAIMS, "exp": 2**40, **more}, SECRET, "HS256"))
    assert refused.value.body == {"message": f"Unauthorized - Invalid shape token: {told}"}


@pytest.mark.parametrize(("beyond", "is_valid"), [(-5, True), (5, False)])
def test_clocks_may_differ_a_little(beyond: int, *, is_valid: bool) -> None:
    now, apart = int(time.time()), int(TOKEN_LEEWAY_SECONDS) + beyond
    for more in ({"exp": now - apart}, {"exp": now + 60, "nbf": now + apart}):
        token = jwt.encode({**CLAIMS, **more}, SECRET, "HS256")
        try:
            found = claims_of(ShapeTokens(SECRET), token)
        except Problem:
            found = None
        assert (found is not None) is is_valid, more


@pytest.mark.parametrize(
    ("authorization", "query", "is_brought"),
    [
        ("Bearer a.b.c", b"", True),
        ("Bearer a-secret", b"offset=-1", False),
        ("", b"offset=-1&token=x", True),
        ("", b"offset=-1&%74oken=x", True),
        ("", b"", False),
    ],
)
def test_whether_a_request_brings_a_token(authorization: str, query: bytes, *, is_brought: bool) -> None:
    assert ShapeTokens(SECRET).brought_by(Headers({"authorization": authorization}), query) is is_brought


def test_public_keys_are_read_from_a_file_and_never_taken_for_a_secret(tmp_path: Path) -> None:
    edwards, rivest = Ed25519PrivateKey.generate(), generate_private_key(65537, 2048)
    keys = [
        {**orjson.loads(jwt.algorithms.OKPAlgorithm.to_jwk(edwards.public_key())), "kid": "ed"},
        {**orjson.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rivest.public_key())), "kid": "rsa"},
    ]
    path = tmp_path / "keys.json"
    path.write_bytes(orjson.dumps({"keys": keys}))
    tokens = ShapeTokens.load(SECRET, path)
    content: dict[str, Any] = {**CLAIMS, "exp": soon()}
    assert claims_of(tokens, jwt.encode(content, edwards, "EdDSA", headers={"kid": "ed"})) is not None
    assert claims_of(tokens, jwt.encode(content, rivest, "RS256", headers={"kid": "rsa"})) is not None
    public = edwards.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    for forged in (
        jwt.encode(content, public, "HS256", headers={"kid": "ed"}),
        jwt.encode(content, Ed25519PrivateKey.generate(), "EdDSA", headers={"kid": "ed"}),
        jwt.encode(content, SECRET, "HS256", headers={"kid": "rsa"}),
    ):
        with pytest.raises(Problem):
            tokens.claims_of(Headers({}), {"token": forged})


def test_a_secret_is_no_token() -> None:
    assert ShapeTokens(SECRET).claims_of(Headers({"authorization": "Bearer a-secret"}), {}) is None


def test_keys_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(TokenSecretShort):
        ShapeTokens("short")
    for content in (b"{", b'{"keys":[]}', b'{"keys":[{"kty":"oct","k":"AAAA","kid":"x"}]}', b"[]"):
        (tmp_path / "keys.json").write_bytes(content)
        with pytest.raises(TokenKeysUnreadable):
            ShapeTokens.load(None, tmp_path / "keys.json")
    with pytest.raises(TokenKeysUnreadable):
        ShapeTokens.load(None, tmp_path / "missing.json")


def test_a_token_that_was_looked_at_is_known_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """By our clock, whatever was remembered: the last second that it is good for is the same either way."""
    monkeypatch.setattr("shapes.http.tokens.TOKENS_KEPT", 2)
    decoded: list[str] = []
    decode = jwt.decode

    def counted(token: str, *more: Any, **named: Any) -> Any:
        decoded.append(token)
        return decode(token, *more, **named)

    monkeypatch.setattr("jwt.decode", counted)
    clock = [time.time()]
    tokens = ShapeTokens(SECRET, now=lambda: clock[0])
    first, second, third = (jwt.encode({**CLAIMS, "exp": soon(), "sub": str(n)}, SECRET, "HS256") for n in range(3))
    for token in (first, first, second, first, third, first, second):
        assert claims_of(tokens, token) is not None
    assert decoded == [first, second, third, second], "the longest unused is forgotten"
    clock[0] += 60 + TOKEN_LEEWAY_SECONDS - 2
    claims_of(tokens, second)
    assert len(decoded) == 4
    clock[0] += 3
    claims_of(tokens, second)  # which jwt, by its own clock, would still take
    assert decoded[4:] == [second] * 2, "what has expired is looked at anew"


@given(
    asked=st.dictionaries(
        st.sampled_from(["offset", "live", "replica", "a b", "ä", "token", "secret"]), st.text(), max_size=5
    ),
    params=st.dictionaries(st.from_regex(r"[1-9]", fullmatch=True), st.text(), max_size=3),
)
def test_a_question_says_what_is_asked_and_not_who_asks(asked: dict[str, str], params: dict[str, str]) -> None:
    texts = [*asked.values(), *params.values()]
    assume(not any("\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text) for text in texts))
    tokens = ShapeTokens(SECRET)
    content = {**CLAIMS, "params": params, "exp": soon()}
    queries = [asked, dict(reversed(asked.items()))]
    questions = set()
    for number, query in enumerate(queries):
        headers = Headers({"authorization": f"Bearer {jwt.encode({**content, 'sub': str(number)}, SECRET, 'HS256')}"})
        questions.add(tokens.question(headers, urlencode({**query, "token": ""}).encode()))
    (question,) = questions
    claims = claims_of(tokens, jwt.encode(content, SECRET, "HS256"))
    assert claims is not None
    expected = {name: text for name, text in claims.applied_to(asked).items() if name not in {"token", "secret"}}
    assert read_query(question) == expected


def test_half_a_letter_is_no_claim() -> None:
    token = jwt.encode({**CLAIMS, "where": "v = '\ud800'", "exp": soon()}, SECRET, "HS256")
    with pytest.raises(Problem) as refused:
        claims_of(ShapeTokens(SECRET), token)
    assert refused.value.status == 401
