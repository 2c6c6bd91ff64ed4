"""What can be wrong with how the shape protocol is used: a server's settings, a client's request.

What requests are told is in `problems`.
"""

from shapes.errors import ShapeError


class HttpError(ShapeError):
    """The root of these."""


class TokenKeysUnreadable(HttpError):
    """The file of keys that tokens are checked with has none that we can use."""

    code = "token_keys_unreadable"
    hint = "Give a JWKS file (RFC 7517) with keys for EdDSA or RS256, each with a `kid`."


class TokenSecretShort(HttpError):
    """The secret that tokens are signed with can be guessed."""

    code = "token_secret_short"
    hint = "Choose 32 bytes or more by chance, such as `openssl rand -base64 32` prints."


class RequestRefused(HttpError):
    """A server says no to what our client asks, and would again."""

    code = "request_refused"
    hint = "Mend what the server's answer names, then ask again."
