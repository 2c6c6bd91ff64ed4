"""The body of `POST /v1/admin/shapes`, read and checked field by field. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from shapes.errors import DefinitionError
from shapes.identifiers import column_list
from shapes.requests import Request

_TEXTS: Final = ("table", "name", "where", "replica", "log")
_FIELDS: Final = frozenset({*_TEXTS, "params", "columns", "wait"})


@dataclass(frozen=True, slots=True)
class Addition:
    """A shape that is asked for."""

    table: str
    name: str | None
    request: Request
    wait: bool
    """Whether the answer follows the birth to its end."""


def parse_addition(body: bytes) -> Addition:
    """Read the body; raises `DefinitionError` that names every field at fault."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DefinitionError(fields={"body": [f"is no JSON: {error}"]}) from None
    if not isinstance(given, dict):
        raise DefinitionError(fields={"body": ["must be a JSON object"]})
    errors: dict[str, list[str]] = {}
    for name in given.keys() - _FIELDS:
        errors[name] = [f"is no field of a shape; there are {', '.join(sorted(_FIELDS))}"]
    for name in _TEXTS:
        if not isinstance(given.get(name), str | None):
            errors[name] = [f"must be text, and is {_kind(given[name])}"]
    if not given.get("table"):
        errors.setdefault("table", ["can't be blank"])
    if not isinstance(given.get("wait", False), bool):
        errors["wait"] = ["must be true or false"]
    params = _params(given.get("params"), errors)
    columns = _columns(given.get("columns"), errors)
    if errors:
        raise DefinitionError(fields=errors)
    request = Request(given.get("where"), params, columns, given.get("replica"), given.get("log"))
    return Addition(given["table"], given.get("name"), request, given.get("wait", False))


def _params(given: Any, errors: dict[str, list[str]]) -> Mapping[str, str]:  # noqa: ANN401 - whatever JSON has
    """As a list, or by number."""
    if given is None:
        return {}
    by_number = dict(enumerate(given, 1)) if isinstance(given, list) else given
    if not isinstance(by_number, dict) or not all(isinstance(value, str) for value in by_number.values()):
        errors["params"] = ['must be a list of texts, or an object such as {"1": "text"}']
        return {}
    return {str(number): value for number, value in by_number.items()}


def _columns(given: Any, errors: dict[str, list[str]]) -> str | None:  # noqa: ANN401 - whatever JSON has
    """As SQL writes a list, or as a list of names as they are."""
    if given is None or isinstance(given, str):
        return given
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        errors["columns"] = ["must be a text with commas, or a list of names"]
        return None
    return column_list(given)


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"
