"""Which shapes are touched by which change of a table, and how: the row comes in, stays, or goes out.

                     the row before matches    it does not
    the new matches  UPDATED                   INSERTED
    it does not      DELETED                   not touched

Only a whole row can be judged. Where Postgres did not send the old one (the replica identity is not FULL), shapes
without a where clause are touched all the same, and those with one are at fault: nobody can tell what they lose.

Invariants:
    the pairs are ascending by (shape, row), none is twice
    what a change costs depends on the shapes that it touches alone
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from cdc.source.numbers import Bytes, Flags, Integers
from shapes.faults import Faults, old_row_missing, where_failed
from shapes.row_images import RowImages

TRUNCATED, INSERTED, UPDATED, DELETED, REINSERTED = range(5)
"""The forms of a change. `REINSERTED` is the second half of an UPDATE of the key; its first half is `DELETED`."""

_FORM_OF_KIND: Final = np.array([0, INSERTED, UPDATED, DELETED, TRUNCATED], np.uint8)


class Matches(Protocol):
    """What `Routes.match` answers."""

    @property
    def shapes(self) -> Integers:
        """Ascending by (shape, row), none twice."""

    @property
    def rows(self) -> Integers:
        """The row that the shape at the same place wants."""

    @property
    def failed(self) -> Mapping[int, str]:
        """Shapes whose clause could not be evaluated for some row, and why."""


class Routes(Protocol):
    """What is asked of a router."""

    def shapes_of(self, table: int) -> Integers:
        """All shapes of the table, ascending."""

    def conditional(self, table: int) -> Integers:
        """Those with a where clause, ascending."""

    def needs_old(self, table: int) -> bool:
        """Whether there are such."""

    def match(self, table: int, rows: pa.StructArray) -> Matches:
        """Which shapes want which of these rows."""


@dataclass(frozen=True, slots=True)
class Touches:
    """Pairs of a shape and a row of the changes, each with the form that the change has for the shape."""

    shapes: Integers
    rows: Integers
    forms: Bytes

    def __getitem__(self, which: Flags | Integers) -> "Touches":
        return Touches(self.shapes[which], self.rows[which], self.forms[which])


def touches(images: RowImages, table: int, router: Routes, faults: Faults) -> Touches:
    """Who is touched by what. Pairs of a shape and a row at fault are left out."""
    if not router.needs_old(table):
        return _of_all(router.shapes_of(table), np.arange(len(images)), images)
    is_judged = ~(images.lacks_old | images.is_truncate)
    found = [_judged(images, is_judged, table, router, faults)]
    if images.lacks_old.any():
        rows = np.flatnonzero(images.lacks_old)
        conditional = router.conditional(table)
        faults.add(conditional.tolist(), rows, old_row_missing(images.relation))
        others = np.setdiff1d(router.shapes_of(table), conditional, assume_unique=True)
        found.append(_of_all(others, rows, images))
    if images.is_truncate.any():
        found.append(_of_all(router.shapes_of(table), np.flatnonzero(images.is_truncate), images))
    return found[0] if len(found) == 1 else _ordered(found, len(images))


def _of_all(shapes: Integers, rows: Integers, images: RowImages) -> Touches:
    """Each shape is touched by each of these changes."""
    forms = _FORM_OF_KIND[images.kind[rows]]
    return Touches(np.repeat(shapes, len(rows)), np.tile(rows, len(shapes)), np.tile(forms, len(shapes)))


def _judged(images: RowImages, which: Flags, table: int, router: Routes, faults: Faults) -> Touches:
    """Who is touched by changes of which the whole rows are known, before and after."""
    count = len(images)
    now = _match(router, table, images.rows_now, np.flatnonzero(which))
    keys = _keys(now, count)
    forms = _FORM_OF_KIND[images.kind[keys % count]]
    failed = dict(now.failed)
    is_update = which & images.is_update
    if is_update.any():
        before = _match(router, table, images.rows_before, np.flatnonzero(is_update))
        failed = dict(before.failed) | failed
        keys, forms = _moves(keys, forms, _keys(before, count))
    found = Touches(keys // count, keys % count, forms)
    for shape, reason in failed.items():
        # The router does not say for which rows, so it may be any.
        faults.add([shape], np.arange(count), where_failed(images.relation, reason))
    return found[~np.isin(found.shapes, list(failed))] if failed else found


@dataclass(frozen=True, slots=True)
class _Match:
    shapes: Integers
    rows: Integers
    failed: Mapping[int, str]


def _match(router: Routes, table: int, values: pa.StructArray, rows: Integers) -> _Match:
    """Ask the router for some of the rows; the answer speaks of all of them."""
    if len(rows) == len(values):
        matches = router.match(table, values)
        return _Match(matches.shapes, matches.rows, matches.failed)
    matches = router.match(table, values.take(pa.array(rows)))
    return _Match(matches.shapes, rows[matches.rows], matches.failed)


def _keys(matches: _Match, count: int) -> Integers:
    """A number for each pair, in the order of (shape, row)."""
    return matches.shapes.astype(np.int64) * count + matches.rows


def _moves(keys: Integers, forms: Bytes, before: Integers) -> tuple[Integers, Bytes]:
    """The pairs that match now, and among the UPDATEs those that matched before, put together."""
    is_update = forms == UPDATED
    if np.array_equal(keys if is_update.all() else keys[is_update], before):
        return keys, forms  # nothing moves, as mostly
    forms = np.where(is_update & ~_among(keys, before), np.uint8(INSERTED), forms)
    gone = before[~_among(before, keys)]
    keys = np.concatenate((keys, gone))
    forms = np.concatenate((forms, np.full(len(gone), DELETED, np.uint8)))
    order = np.argsort(keys, kind="stable")
    return keys[order], forms[order]


def _among(some: Integers, others: Integers) -> Flags:
    """Which of some numbers are among others; both ascending."""
    if not len(others):
        return np.zeros(len(some), np.bool_)
    places = np.minimum(np.searchsorted(others, some), len(others) - 1)
    found: Flags = others[places] == some
    return found


def _ordered(found: Sequence[Touches], count: int) -> Touches:
    joined = Touches(
        np.concatenate([part.shapes for part in found]),
        np.concatenate([part.rows for part in found]),
        np.concatenate([part.forms for part in found]),
    )
    return joined[np.argsort(joined.shapes * count + joined.rows, kind="stable")]
