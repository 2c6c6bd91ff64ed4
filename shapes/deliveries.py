"""One table's changes of a fragment become rows for the logs of its shapes.

    Changes --matching--> touches: (shape, row, form) --variants--> a table for each view, each shape's rows in it

Everything is done for all shapes at once, with arrays: there is a table for each view, and no object for each change.
A Python object exists for each shape that is touched, no longer than it takes to look up its view.

Invariants:
    a shape is in one part at most, and in none if it is at fault
    a shape's rows are strictly ascending by (tx, op)
    applied to the rows that matched before, a shape's rows give the rows that match after
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc.source.fragments import Changes
from cdc.source.numbers import Integers, Words
from shapes.faults import Excuse, Faults, ShapeFault, column_missing
from shapes.matching import Routes, Touches, touches
from shapes.row_images import RowImages
from shapes.variants import Variants, rows_at_fault, table_of, told
from shapes.views import View


@dataclass(frozen=True, slots=True)
class Part:
    """What the shapes of one view get of one table's changes: shape i `rows[indices[starts[i]:starts[i + 1]]]`."""

    view: View
    rows: pa.RecordBatch
    """As a log has them, ascending by (tx, op). Two forms of one change may share an offset, never in one shape."""
    shapes: Integers
    """Ascending, none twice, none without rows."""
    starts: Integers
    """One more than there are shapes."""
    indices: Integers
    ordinals: Integers
    """For each entry of `indices`, its transaction's ordinal in the fragment."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What becomes of one table's changes."""

    parts: tuple[Part, ...]
    faults: Mapping[int, ShapeFault]
    """Shapes that must end, and why. They are in no part."""


def _never(_shape: int, _transactions: Integers) -> bool:
    return False


def deliver(
    changes: Changes,
    xids: Words,
    table: int,
    router: Routes,
    view_of: Callable[[int], View],
    is_excused: Excuse = _never,
) -> Delivered:
    """Who gets what. `xids`: who the fragment's transactions are.

    `is_excused` may say that a shape is not told of some transactions anyway (see `faults`).
    """
    images = RowImages(changes, xids)
    faults = Faults(changes.transaction)
    touched = list(_by_view(touches(images, table, router, faults), view_of))
    whole = [(view, _without_faults(view, images, found, faults)) for view, found in touched]
    fallen = faults.without_excused(is_excused)
    parts = []
    for view, found in whole:
        kept = found[~np.isin(found.shapes, list(fallen))] if fallen else found
        left = told(view, images, kept) if len(kept.shapes) else kept
        if len(left.shapes):
            parts.append(_part(view, images, left))
    return Delivered(tuple(parts), fallen)


def _by_view(found: Touches, view_of: Callable[[int], View]) -> Iterator[tuple[View, Touches]]:
    """The touches of each view, in the order of its first shape."""
    if not len(found.shapes):
        return
    firsts = np.flatnonzero(np.diff(found.shapes, prepend=-1))
    views = [view_of(shape) for shape in found.shapes[firsts].tolist()]
    # Most shapes share their view's object, and a number is hashed sooner than names.
    numbers: dict[View, int] = {}
    number_of_object = {id(view): numbers.setdefault(view, len(numbers)) for view in {id(v): v for v in views}.values()}
    if len(numbers) == 1:
        yield views[0], found
        return
    number_of_shape = np.array([number_of_object[id(view)] for view in views], np.int64)
    number_of_touch = np.repeat(number_of_shape, np.diff(firsts, append=len(found.shapes)))
    order = np.argsort(number_of_touch, kind="stable")
    ends = np.cumsum(np.bincount(number_of_touch, minlength=len(numbers)))
    for view, places in zip(numbers, np.split(order, ends[:-1]), strict=True):
        yield view, found[places]


def _without_faults(view: View, images: RowImages, found: Touches, faults: Faults) -> Touches:
    """What the view's shapes can be told of."""
    if missing := set(view.columns) - set(images.names):
        faults.add_pairs(found.shapes, found.rows, column_missing(images.relation, missing))
        return found[np.zeros(len(found.rows), np.bool_)]
    for rows, reason in rows_at_fault(view, images):
        at_fault = rows[found.rows]
        if at_fault.any():
            faults.add_pairs(found.shapes[at_fault], found.rows[at_fault], reason)
            found = found[~at_fault]
    return found


def _part(view: View, images: RowImages, found: Touches) -> Part:
    variants, indices = Variants.wanted(found, len(images))
    firsts = np.flatnonzero(np.diff(found.shapes, prepend=-1))
    return Part(
        view,
        table_of(view, images, variants),
        found.shapes[firsts],
        np.append(firsts, len(found.shapes)),
        indices,
        images.ordinals[found.rows],
    )
