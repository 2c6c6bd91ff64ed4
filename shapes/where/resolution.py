"""Which of several operators or functions of a name is meant, by the types of its arguments: Postgres' own rules.

The steps and their order are those of its manual, "Type Conversion". A quoted constant has the type `unknown`, which
fits everywhere, until a step says what it is.
"""

from collections.abc import Sequence

from shapes.where.coercion import is_implicit
from shapes.where.operators import SIGNATURES, Signature, signature_of
from shapes.where.types import UNKNOWN, Type


class Ambiguous(Exception):
    """Several fit, and none better than the others."""


def resolve_operator(name: str, kinds: tuple[Type, ...]) -> Signature | None:
    """The operator for these operands; None where there is none."""
    if len(kinds) == 2:
        left, right = kinds
        # A quoted constant is first taken to be of the other side's type.
        exact = signature_of(name, (right if left == UNKNOWN else left, left if right == UNKNOWN else right))
        if exact is not None:
            return exact
    return resolve(name, kinds)


def resolve(name: str, kinds: tuple[Type, ...]) -> Signature | None:
    """The operator or function of this name for these arguments; None where there is none."""
    exact = signature_of(name, kinds)
    if exact is not None:
        return exact
    candidates = [
        found
        for found in SIGNATURES.get(name, ())
        if len(found.args) == len(kinds) and all(map(_fits, kinds, found.args))
    ]
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    return _select(candidates, kinds)


def _fits(source: Type, target: Type) -> bool:
    return source == UNKNOWN or is_implicit(source, target)


def _select(candidates: list[Signature], kinds: tuple[Type, ...]) -> Signature:
    known = [place for place, kind in enumerate(kinds) if kind != UNKNOWN]
    unknown = [place for place, kind in enumerate(kinds) if kind == UNKNOWN]

    def exact_count(found: Signature) -> int:
        return sum(found.args[place] == kinds[place] for place in known)

    def good_count(found: Signature) -> int:
        return sum(
            found.args[place] == kinds[place] or _is_preferred(found.args[place], kinds[place]) for place in known
        )

    for count in (exact_count, good_count):
        most = max(map(count, candidates))
        candidates = [found for found in candidates if count(found) == most]
        if len(candidates) == 1:
            return candidates[0]
    if unknown:
        candidates = _by_category(candidates, unknown)
        if len(candidates) == 1:
            return candidates[0]
        known_kinds = {kinds[place] for place in known}
        if len(known_kinds) == 1:
            (kind,) = known_kinds
            fitting = [found for found in candidates if all(is_implicit(kind, arg) for arg in found.args)]
            if len(fitting) == 1:
                return fitting[0]
    raise Ambiguous


def _is_preferred(arg: Type, kind: Type) -> bool:
    return arg.preferred and arg.category == kind.category


def _by_category(candidates: list[Signature], unknown: Sequence[int]) -> list[Signature]:
    """Text where one of them takes text, else the category that all of them take; preferred types first."""
    kept = candidates
    for place in unknown:
        categories = {found.args[place].category for found in candidates}
        if len(categories) > 1 and "S" not in categories:
            return candidates
        category = "S" if "S" in categories else categories.pop()
        has_preferred = any(f.args[place].preferred for f in candidates if f.args[place].category == category)
        kept = [
            found
            for found in kept
            if found.args[place].category == category and (found.args[place].preferred or not has_preferred)
        ]
    return kept or candidates
