"""Answers that are not rows: each a status, a body and headers, to the letter as clients know them. Pure.

A problem is raised where it is found, and becomes the response in one place. Nothing that a request brought is in a
message except what the definition's errors quote of it; never a secret.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

KNOWN: Final = {"electric-internal-known-error": "true"}
"""Of what is expected to pass: clients need not tell anybody."""


class Problem(Exception):
    """What a request is answered with instead of rows."""

    def __init__(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = dict(headers or {})


def invalid(fields: Mapping[str, Any]) -> Problem:
    """400: what is wrong with each field."""
    return Problem(400, {"message": "Invalid request", "errors": dict(fields)})


def invalid_field(field: str, *texts: str) -> Problem:
    """400 for one field."""
    return invalid({field: list(texts)})


def out_of_bounds() -> Problem:
    """400: an offset that this shape has never had."""
    return Problem(400, {"message": "Invalid request", "errors": {"offset": ["out of bounds for this shape"]}})


def invalid_subset(fields: Mapping[str, str | Sequence[str]]) -> Problem:
    """400: what is wrong with a subset."""
    return Problem(400, {"message": "Invalid request", "errors": {"subset": dict(fields)}})


def unauthorized() -> Problem:
    """401: no secret, or not the right one."""
    return Problem(401, {"message": "Unauthorized - Invalid API secret"})


def refused_token(reason: str) -> Problem:
    """401: a token that is not valid."""
    return Problem(401, {"message": f"Unauthorized - Invalid shape token: {reason}"})


def other_name() -> Problem:
    """403: the server is asked by a name that is not its own."""
    told = "Forbidden - Host not allowed: ask at localhost, or start the server with --allowed-host or --secret"
    return Problem(403, {"message": told})


def other_shape(field: str) -> Problem:
    """403: a valid token, for another shape."""
    return Problem(403, {"message": "Forbidden - The shape token is for another shape", "errors": {field: ["differs"]}})


def no_shape() -> Problem:
    """404: nothing to delete."""
    return Problem(404, {"message": "No existing shape found"})


def no_deleting() -> Problem:
    """405: shapes are deleted only where the operator allows it."""
    return Problem(405, {"message": "DELETE not allowed"}, {"allow": "GET, HEAD, POST, OPTIONS"})


def no_method() -> Problem:
    """405: a method that the route does not have."""
    return Problem(405, {"message": "Method not allowed"}, {"allow": "GET, HEAD, POST, DELETE, OPTIONS"})


def must_refetch(handle: str | None) -> Problem:
    """409: the handle is over; begin anew, with the other if there is one."""
    return Problem(409, [{"headers": {"control": "must-refetch"}}], {"electric-handle": handle} if handle else {})


def body_too_large() -> Problem:
    """413."""
    return Problem(413, {"error": "Request body too large"})


def url_too_long() -> Problem:
    """414."""
    return Problem(414, {"message": "Request target too long"})


def not_json(details: str) -> Problem:
    """400: a body that is no JSON."""
    return Problem(400, {"error": "Invalid JSON in request body", "details": details})


def not_an_object() -> Problem:
    """400: a body that is JSON, but no object."""
    return Problem(400, {"error": "Request body must be a JSON object"})


def failed() -> Problem:
    """500: a fault of ours; what it was is in the log."""
    return Problem(500, {"error": "Internal server error"})


def not_yet(message: str, retry_seconds: int, **more: Any) -> Problem:
    """503: expected, and over in a while."""
    return Problem(503, {"message": message, **more}, {**KNOWN, "retry-after": str(retry_seconds)})


def overloaded(kind: str, retry_seconds: int) -> Problem:
    """503: too many at once."""
    text = f"Concurrent {kind} request limit exceeded, please retry"
    return not_yet(text, retry_seconds, code="concurrent_request_limit_exceeded")


def unreachable_table() -> Problem:
    """503: the server did not say what the table is like."""
    return not_yet("Cannot connect to the database to verify the shape. Please try again later.", 1)


def unreachable_database() -> Problem:
    """503: the server does not answer a query."""
    body = {"code": "database_unreachable", "error": "Database is unreachable"}
    return Problem(503, body, {**KNOWN, "retry-after": "10"})
