"""Signed shape tokens: who has one may follow one shape, until it expires, and nothing else.

A token is a JWT. Its claims `table`, `where`, `params`, `columns` and `queryable_columns` are the shape; what it does
not claim, a request cannot have (`where` and `columns` missing: the whole table). `replica` and `log` are free unless
claimed. `exp` must be there.

Invariants:
    the algorithm follows from the key and never from the token: a public key is never taken for a secret
    a request with a token is for the token's shape, however it is spelled, or it is refused
    what is asked is the same question whoever asks it: all that follows from it is shared by all readers of a shape
    no token, and no part of one, is in a log or an answer
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote_to_bytes, urlencode

import jwt
import orjson
from starlette.datastructures import Headers
from starlette.types import Scope

from shapes.http.envelope import SHAPE_PATH
from shapes.http.errors import TokenKeysUnreadable, TokenSecretShort
from shapes.http.limits import TOKEN_BYTES_KEPT, TOKEN_BYTES_MAX, TOKEN_LEEWAY_SECONDS, TOKENS_KEPT
from shapes.http.params import read_query
from shapes.http.problems import Problem, other_shape, refused_token, unauthorized
from shapes.identifiers import column_list

SECRET_BYTES_MIN: Final = 32
"""As many as the hash that signs has: a shorter one is what an attacker would guess."""

_FIXED: Final = ("table", "where", "columns", "queryable_columns")
_LISTS: Final = ("columns", "queryable_columns")
_CLAIMABLE: Final = ("replica", "log")
_ASYMMETRIC: Final = {"OKP": "EdDSA", "RSA": "RS256"}
_BEARER: Final = "bearer "
_DOTS: Final = 2
_PARAMS: Final = "params["
_WHO: Final = frozenset({"token", "secret", "api_secret"})
"""Fields that say who asks, and not what."""


@dataclass(frozen=True, slots=True)
class ShapeClaims:
    """The shape that a token is for."""

    fields: Mapping[str, str]
    params: Mapping[str, str]

    def applied_to(self, asked: Mapping[str, str]) -> dict[str, str]:
        """The request's fields, for this shape; 403 for those of another."""
        for name in _FIXED:
            if name in asked and asked[name] != self.fields.get(name):
                raise other_shape(name)
        for name in _CLAIMABLE:
            if name in self.fields and asked.get(name, self.fields[name]) != self.fields[name]:
                raise other_shape(name)
        claimed = {f"{_PARAMS}{number}]": text for number, text in self.params.items()}
        given = {name: text for name, text in asked.items() if name.startswith(_PARAMS)}
        if "params" in asked or (given and given != claimed):
            raise other_shape("params")
        return {**asked, **self.fields, **claimed}


class ShapeTokens:
    """Checks tokens with the keys that there are."""

    def __init__(
        self,
        secret: str | None = None,
        keys: Mapping[str, jwt.PyJWK] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`keys`: public ones, by their `kid`. `now`: seconds since 1970."""
        if secret is not None and len(secret.encode()) < SECRET_BYTES_MIN:
            raise TokenSecretShort(f"the token secret has less than {SECRET_BYTES_MIN} bytes")
        self._secret = secret
        self._keys = dict(keys or {})
        self._now = now
        self._valid: OrderedDict[bytes, tuple[float, ShapeClaims]] = OrderedDict()
        """Until when tokens are, and what they claim, by their hashes: a reader brings the same one every time."""

    @classmethod
    def load(cls, secret: str | None, jwks: Path | None) -> Self:
        """With the keys of a JWKS file."""
        if jwks is None:
            return cls(secret)
        try:
            found = jwt.PyJWKSet.from_dict(orjson.loads(jwks.read_bytes())).keys
        except (OSError, ValueError, TypeError, AttributeError, jwt.PyJWTError) as error:
            raise TokenKeysUnreadable(f"{jwks}: {error}") from None
        keys = {key.key_id: key for key in found if key.key_id is not None and key.key_type in _ASYMMETRIC}
        if not keys:
            raise TokenKeysUnreadable(f"{jwks} has no key for EdDSA or RS256 with a kid")
        return cls(secret, keys)

    def refusal_of(self, scope: Scope) -> Problem | None:
        """What a request without the secret is told; None for one that is for a shape, and brings a valid token."""
        if scope["path"] != SHAPE_PATH:
            return unauthorized()
        try:
            claims = self.claims_of(Headers(scope=scope), read_query(scope["query_string"]))
        except Problem as problem:
            return problem if problem.status == HTTPStatus.UNAUTHORIZED else unauthorized()
        return unauthorized() if claims is None else None

    def claims_of(self, headers: Headers, fields: Mapping[str, str]) -> ShapeClaims | None:
        """What the request's token claims; None if it has none. 401 for one that is not valid."""
        token = fields.get("token") or _bearer(headers)
        return None if token is None else self._verified(token)

    def brought_by(self, headers: Headers, query: bytes) -> bool:
        """Whether a request brings one, whatever it is worth."""
        return _bearer(headers) is not None or b"token=" in unquote_to_bytes(query)

    def question(self, headers: Headers, query: bytes) -> bytes:
        """A request's query for the shape that it may ask for, the same for all who may and do."""
        fields = read_query(query)
        claims = self.claims_of(headers, fields)
        asked = fields if claims is None else claims.applied_to(fields)
        return urlencode(sorted((name, text) for name, text in asked.items() if name not in _WHO)).encode("ascii")

    def _verified(self, token: str) -> ShapeClaims:
        if len(token) > TOKEN_BYTES_MAX:
            raise refused_token("it is too long")
        name = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._valid.get(name)
        if known is not None and known[0] > self._now() - TOKEN_LEEWAY_SECONDS:
            self._valid.move_to_end(name)
            return known[1]
        content = self._content(token)
        claims = _claims(content)
        if len(token) <= TOKEN_BYTES_KEPT:
            self._valid[name] = int(content["exp"]), claims
            while len(self._valid) > TOKENS_KEPT:
                self._valid.popitem(last=False)
        return claims

    def _content(self, token: str) -> dict[str, Any]:
        """What it says, once its signature and its time have been looked at."""
        try:
            key, algorithm = self._key_for(jwt.get_unverified_header(token))
            content: dict[str, Any] = jwt.decode(
                token, key, algorithms=[algorithm], leeway=TOKEN_LEEWAY_SECONDS, options={"require": ["exp"]}
            )
        except jwt.ExpiredSignatureError:
            raise refused_token("it has expired") from None
        except jwt.MissingRequiredClaimError:
            raise refused_token("it has no exp") from None
        except jwt.ImmatureSignatureError:
            raise refused_token("it is not valid yet") from None
        except jwt.InvalidAudienceError:
            raise refused_token("it is for somebody else: it has an aud") from None
        except (jwt.PyJWTError, ValueError, OverflowError):  # the last: an exp without end
            raise refused_token("its signature is not by a key of ours") from None
        return content

    def _key_for(self, header: Mapping[str, Any]) -> tuple[Any, str]:
        kid = header.get("kid")
        if isinstance(kid, str) and kid in self._keys:
            key = self._keys[kid]
            return key.key, _ASYMMETRIC[str(key.key_type)]
        if self._secret is None:
            raise jwt.InvalidKeyError("no key")
        return self._secret, "HS256"


def _bearer(headers: Headers) -> str | None:
    """What looks like a token; all else is a secret, which is not our business."""
    text = headers.get("authorization", "")
    if not text.lower().startswith(_BEARER):
        return None
    token = text[len(_BEARER) :].strip()
    return token if token.count(".") == _DOTS else None


def _claims(claims: Mapping[str, Any]) -> ShapeClaims:
    fields = {name: claims[name] for name in (*_FIXED, *_CLAIMABLE) if name in claims}
    for name in _LISTS:
        if isinstance(names := fields.get(name), list) and all(map(_is_text, names)):
            fields[name] = column_list(names)
    params = claims.get("params", {})
    if not isinstance(params, dict) or not all(map(_is_text, (*fields.values(), *params, *params.values()))):
        raise refused_token("a claim about the shape is not text")
    if blank := [name for name, text in fields.items() if not text.strip()]:  # in a request, as if it were not there
        raise refused_token(f"its claim {blank[0]} is empty: leave it out to claim all")
    if "table" not in fields:
        raise refused_token("it claims no table")
    return ShapeClaims(fields, params)


def _is_text(value: object) -> bool:
    """Text that can be sent: half a pair of surrogates, which JSON can say, cannot."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
