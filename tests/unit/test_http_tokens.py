"""Signed shape tokens: what opens, what does not, and that a token is for one shape."""

import time
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.datastructures import Headers

from shapes.http.errors import TokenKeysUnreadable, TokenSecretShort
from shapes.http.problems import Problem
from shapes.http.tokens import ShapeClaims, ShapeTokens

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
