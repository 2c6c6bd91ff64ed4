"""What a change is told as to the shapes of a view: which variants of it are wanted, and the table of them.

Shapes of one view may see one change in several forms: where it stays, where it comes in, where it goes out. Each form
that anybody wants is one row of the view's table, and a shape's rows are numbers of such rows.

    form        kind      offset      `new` has, replica=default               `new` has, replica=full   `old`
    TRUNCATED   TRUNCATE  (tx, op)    NULL                                     NULL
    INSERTED    INSERT    (tx, op)    the whole row                            the same
    UPDATED     UPDATE    (tx, op)    the key, and what changed                the whole row             whole
    DELETED     DELETE    (tx, op)    the key as it was                        the whole row as it was
    REINSERTED  INSERT    (tx, op+1)  the whole row                            the same

Invariants:
    the rows of a table are ascending by (tx, op), and those of one shape strictly so
    what is not in `new` is marked in `absent`; the whole row has nothing absent
    a table of plain INSERTs with all the columns is the fragment's own with their `xid`, not a copy
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa

from cdc.source.numbers import Bytes, Flags, Integers
from cdc.source.tuples import bitmaps, numbers
from shapes.faults import ShapeFault, key_change_incomplete, key_unknown, old_row_missing
from shapes.matching import DELETED, INSERTED, REINSERTED, TRUNCATED, UPDATED, Touches
from shapes.row_images import RowImages
from shapes.views import View
from storage.rows import ABSENT, OLD, Kind, row_schema

_FORMS: Final = 5
_KIND_OF_FORM: Final = np.empty(_FORMS, np.uint8)
_KIND_OF_FORM[[TRUNCATED, INSERTED, UPDATED, DELETED, REINSERTED]] = [
    Kind.TRUNCATE,
    Kind.INSERT,
    Kind.UPDATE,
    Kind.DELETE,
    Kind.INSERT,
]


def rows_at_fault(view: View, images: RowImages) -> Iterator[tuple[Flags, ShapeFault]]:
    """Changes that the view's shapes cannot be told of, since something about the row before was not sent."""
    lacking = images.lacks_old
    if not lacking.any():
        return
    if view.full:
        yield lacking, old_row_missing(images.relation)
        return
    lacking_updates = lacking & images.is_update
    unknown = lacking & _any([images.unknown_before(name) for name in view.key])
    unknown |= lacking_updates & _any([images.unknown_now(name) for name in view.key])
    yield unknown, key_unknown(images.relation)
    moved = lacking_updates & ~unknown & _any([images.changed(name) for name in view.key])
    if moved.any():
        incomplete = moved & _any([images.unknown_now(name) for name in view.columns])
        yield incomplete, key_change_incomplete(images.relation)


def told(view: View, images: RowImages, touches: Touches) -> Touches:
    """What is left of the touches: UPDATEs that change nothing drop out, those that change the key become two."""
    is_update = touches.forms == UPDATED
    if not is_update.any():
        return touches
    kept = ~is_update | _changes_some(view, images)[touches.rows]
    if not kept.all():
        touches, is_update = touches[kept], is_update[kept]
    is_split = is_update & _any([images.changed(name) for name in view.key])[touches.rows]
    if not is_split.any():
        return touches
    halves = touches[np.repeat(np.arange(len(is_split)), 1 + is_split)]
    second = np.cumsum(1 + is_split)[is_split] - 1
    halves.forms[second - 1] = DELETED
    halves.forms[second] = REINSERTED
    return halves


def _changes_some(view: View, images: RowImages) -> Flags:
    """Which UPDATEs change some column. Mostly that is known of all of them before all columns were compared."""
    found = np.zeros(len(images), np.bool_)
    for name in view.columns:
        found |= images.changed(name)
        if np.array_equal(found, images.is_update):
            break
    return found


@dataclass(frozen=True, slots=True)
class Variants:
    """Some changes, each in one or more forms; ascending by (row, form), which is ascending by (tx, op)."""

    rows: Integers
    forms: Bytes

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def wanted(cls, touches: Touches, count: int) -> tuple["Variants", Integers]:
        """Each variant that is wanted once, and for each touch the number of its variant."""
        codes = touches.rows * _FORMS + touches.forms
        is_wanted = np.zeros(count * _FORMS, np.bool_)
        is_wanted[codes] = True
        found = np.flatnonzero(is_wanted)
        places = np.cumsum(is_wanted) - 1
        return cls(found // _FORMS, (found % _FORMS).astype(np.uint8)), places[codes]


def table_of(view: View, images: RowImages, variants: Variants) -> pa.RecordBatch:
    """The variants as rows of a log."""
    if _is_fragment_itself(view, images, variants):
        return images.as_logged
    columns = [
        numbers(pa.uint64(), images.tx[variants.rows]),
        numbers(pa.uint64(), images.op[variants.rows] + (variants.forms == REINSERTED)),
        numbers(pa.uint8(), _KIND_OF_FORM[variants.forms]),
        numbers(pa.uint32(), images.xid[variants.rows]),
    ]
    sent = [_sent(view, images, variants, name) for name in view.columns]
    is_there = variants.forms != TRUNCATED
    columns.append(_absent(sent, is_there))
    columns.append(_new(view, images, variants, sent))
    is_update = variants.forms == UPDATED
    with_old = view.full and bool(is_update.any())
    if with_old:
        columns.append(_old(view, images, variants, is_update))
    return pa.RecordBatch.from_arrays(columns, schema=row_schema(view.columns, old=with_old, xid=True))


def _is_fragment_itself(view: View, images: RowImages, variants: Variants) -> bool:
    """Whether every change is an INSERT that is told as it came."""
    return (
        images.has_inserts_only
        and len(variants) == len(images)
        and view.columns == images.names
        and ABSENT in images.rows.schema.names
        and OLD not in images.rows.schema.names
    )


def _sent(view: View, images: RowImages, variants: Variants, name: str) -> Flags | None:
    """In which variants the column has a value, be it NULL; None for all."""
    forms = variants.forms
    if view.full or images.has_inserts_only or name in view.key:
        return None if not images.is_truncate.any() else forms != TRUNCATED
    is_whole = (forms == INSERTED) | (forms == REINSERTED)
    sent: Flags = is_whole | ((forms == UPDATED) & images.changed(name)[variants.rows])
    return sent


def _absent(sent: list[Flags | None], is_there: Flags) -> pa.Array:
    """The bitmaps of what has no value; a row that is not there has none."""
    if all(flags is None or bool((flags | ~is_there).all()) for flags in sent):
        return pa.nulls(len(is_there), pa.binary())
    missing = np.zeros((len(is_there), len(sent)), np.bool_)
    for index, flags in enumerate(sent):
        if flags is not None:
            missing[:, index] = is_there & ~flags
    return bitmaps(missing)


def _new(view: View, images: RowImages, variants: Variants, sent: list[Flags | None]) -> pa.StructArray:
    """The row that each variant is about. What goes out by an UPDATE is told as it was before."""
    left = (variants.forms == DELETED) & images.is_update[variants.rows]
    source = variants.rows + left * len(images) if left.any() else variants.rows
    in_place = not left.any() and len(variants) == len(images) and bool((np.diff(variants.rows) == 1).all())
    children = []
    for name, flags in zip(view.columns, sent, strict=True):
        values = images.now(name)
        if left.any():
            values = pa.concat_arrays([values, images.before(name)])
        if flags is not None and not flags.any():
            children.append(pa.nulls(len(variants), pa.string()))
        elif in_place and (flags is None or flags.all()):
            children.append(values)
        else:
            children.append(values.take(_indices(source, flags)))
    is_gone = variants.forms == TRUNCATED
    return _struct(view, children, is_gone)


def _old(view: View, images: RowImages, variants: Variants, is_update: Flags) -> pa.StructArray:
    """The row before each UPDATE."""
    if len(variants) == len(images) and is_update.all():
        return _struct(view, [images.before(name) for name in view.columns], ~is_update)
    wanted = _indices(variants.rows, is_update)
    return _struct(view, [images.before(name).take(wanted) for name in view.columns], ~is_update)


def _struct(view: View, children: list[pa.Array], is_null: Flags) -> pa.StructArray:
    mask = pa.array(is_null) if is_null.any() else None
    return pa.StructArray.from_arrays(children, names=list(view.columns), mask=mask)


def _indices(rows: Integers, wanted: Flags | None) -> pa.Array:
    """Row numbers for a `take`, NULL where no value is wanted."""
    return pa.array(rows) if wanted is None or wanted.all() else pa.array(rows, mask=~wanted)


def _any(flags: list[Flags]) -> Flags:
    return reduce(np.logical_or, flags)
