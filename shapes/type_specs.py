"""What a column's type is made of, down to types that every Postgres has: for those who store values typed. Pure.

A specification is JSON, since the catalog keeps it with a shape's definition:

    [23, -1]                                                oid and modifier of a base type
    {"kind": "enum"}
    {"kind": "array", "of": element}
    {"kind": "range", "of": bounds}
    {"kind": "composite", "fields": [[name, its type], ..]}

A domain is the type below it. A column whose oid says all has none; nor has an array whose elements are divided by
another character than a comma. Values are texts in a log in any case: nothing else depends on this, so two definitions
that differ in it alone are one.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shapes.limits import TYPE_DEPTH_MAX

FIRST_USER_OID: Final = 16_384
"""Oids below are the same in every database of a version."""

Facts = Mapping[str, Mapping[str, Any]]
"""Of types that are not base types, by oid; as `shapes.tables` reads them."""


def type_spec(oid: int, typmod: int, types: Facts) -> Any:  # noqa: ANN401 - JSON
    """The specification of a column's type; None if its oid says all."""
    found = _spec(oid, typmod, types, TYPE_DEPTH_MAX)
    is_leaf = isinstance(found, list) and found[0] == oid
    is_known = isinstance(found, dict) and found["kind"] == "array" and oid < FIRST_USER_OID
    return None if is_leaf or (is_known and isinstance(found["of"], list)) else found


def enums_below(oid: int, types: Facts) -> dict[str, tuple[str, ...]]:
    """The labels of each enum that values of a type are made of, by its oid."""
    found: dict[str, tuple[str, ...]] = {}
    wanted = [oid]
    for _ in range(TYPE_DEPTH_MAX):
        facts = {str(one): types[str(one)] for one in wanted if str(one) in types}
        found |= {one: tuple(of["labels"] or ()) for one, of in facts.items() if of["kind"] == "e"}
        wanted = [below for of in facts.values() for below in _below(of)]
    return found


def _below(facts: Mapping[str, Any]) -> Iterator[int]:
    """What a type that is no base type is made of, one step down."""
    match facts["kind"]:
        case "d":
            yield facts["base"]
        case "r":
            yield facts["bounds"]
        case "c":
            yield from (of for _, of, _ in facts["fields"] or ())
        case "b":
            yield facts["element"]


def _spec(oid: int, typmod: int, types: Facts, depth: int) -> Any:  # noqa: ANN401 - JSON
    facts = types.get(str(oid))
    if facts is None or depth == 0:
        return [oid, typmod]
    depth -= 1
    match facts["kind"]:
        case "d":
            return _spec(facts["base"], facts["typmod"], types, depth)
        case "e":
            return {"kind": "enum"}
        case "r":
            return {"kind": "range", "of": _spec(facts["bounds"], -1, types, depth)}
        case "c":
            fields = [[name, _spec(of, modifier, types, depth)] for name, of, modifier in facts["fields"] or ()]
            return {"kind": "composite", "fields": fields}
        case _ if facts.get("delimiter", ",") != ",":
            return [oid, typmod]  # boxes, and geometries of PostGIS: there is a comma within an element
        case _:
            return {"kind": "array", "of": _spec(facts["element"], typmod, types, depth)}
