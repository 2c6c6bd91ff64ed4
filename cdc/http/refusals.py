"""Our errors as answers: which status each family has, and one form of body for all."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from cdc.source.errors import ConnectionFault, SourceError
from shapes.errors import (
    BirthFailed,
    DefinitionError,
    InvalidShapeName,
    ShapeError,
    ShapeNameTaken,
    TableChanged,
    UnknownShape,
)
from shapes.http.problems import Problem
from shapes.http.responses import answer_of
from storage.errors import AboveUpper, InvalidOffset, Refetch, SharedDiskFault, StorageError, UnknownLog

KNOWN: Final = (ShapeError, SourceError, StorageError)

_STATUS: Final[Mapping[type[Exception], int]] = {
    DefinitionError: 400,
    InvalidShapeName: 400,
    InvalidOffset: 400,
    UnknownShape: 404,
    UnknownLog: 404,
    ShapeNameTaken: 409,
    TableChanged: 409,
    Refetch: 409,
    BirthFailed: 422,
    ConnectionFault: 503,
    SharedDiskFault: 503,
    AboveUpper: 503,
    SourceError: 502,
}
"""By the nearest class; all else is a fault of ours."""


def status_of(error: Exception) -> int:
    """The HTTP status of one of our errors."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def facts_of(error: ShapeError | SourceError | StorageError) -> dict[str, Any]:
    """An error as JSON: its code, what happened, what to do; and each field that is at fault."""
    hint = error.hint if isinstance(error, StorageError) else error.advice
    facts: dict[str, Any] = {"code": error.code, "message": error.message, "hint": hint}
    if isinstance(error, DefinitionError):
        facts["fields"] = {name: list(texts) for name, texts in error.fields.items()}
    return {"error": facts}


def refusal(error: ShapeError | SourceError | StorageError) -> JSONResponse:
    """The answer that an error is."""
    return JSONResponse(facts_of(error), status_of(error), headers={"cache-control": "no-store"})


def problem_response(problem: Problem) -> Response:
    """What the shape protocol has for a refusal, from whoever stands in front of it: no cache keeps it."""
    headers, body = answer_of(problem)
    return Response(body, problem.status, dict(headers))
