"""What can go wrong with shapes: a class for each condition, with a code, the facts, and a hint for a person."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cdc.source.coded_error import CodedError, rebuild

WHERE_PREFIX: Final = "SELECT 1 WHERE "
"""What a where clause is read behind; the locations in its errors count it."""


class ShapeError(CodedError):
    """The root of the errors of shapes."""

    code = "shape"


class DefinitionError(ShapeError):
    """What was asked for is no shape; says for each field of the request what is wrong with it."""

    code = "definition_error"
    hint = "Mend the fields that are named, then ask again."

    def __init__(
        self, message: str | None = None, *, fields: Mapping[str, Sequence[str]], hint: str | None = None
    ) -> None:
        shown = "; ".join(f"{field}: {', '.join(texts)}" for field, texts in fields.items())
        super().__init__(message or f"not a shape: {shown}", hint=hint)
        self.fields = {field: tuple(texts) for field, texts in fields.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.message, self.advice, {"fields": self.fields})


class DefinitionUnreadable(ShapeError):
    """The catalog holds a shape whose definition this program does not understand."""

    code = "definition_unreadable"
    hint = "Open the folder with the version that wrote it."


class InvalidShapeName(ShapeError):
    """A name that a shape cannot have."""

    code = "invalid_shape_name"
    hint = "Use letters, digits and _ . - only, beginning with a letter, a digit or _: the name is part of file names."


class ShapeNameTaken(ShapeError):
    """Another shape has the name."""

    code = "shape_name_taken"
    hint = "Choose another name, or remove the shape that has it."


class UnknownShape(ShapeError):
    """No shape has the handle or name."""

    code = "unknown_shape"
    hint = "List the shapes; one that ended does not come back under the same handle."


class StreamRecordDamaged(ShapeError):
    """The file that says which stream the folder's data came from cannot be read."""

    code = "stream_record_damaged"
    hint = "Restore stream.json from a backup, or run `shapelog recover --resnapshot` to begin with new snapshots."


class SnapshotLost(ShapeError):
    """The snapshot of a table ended before its rows were copied; it is taken again, a number of times."""

    code = "snapshot_lost"
    hint = "Nothing has to be done, unless it goes on: then look at the server's log for who ends our sessions."


class SnapshotRefused(ShapeError):
    """The server will not show the table, however often it is asked."""

    code = "snapshot_refused"
    hint = "Mend what the server's message names, then ask for the shape again."


class TableLocked(ShapeError):
    """Somebody has the table for themselves at the moment; it is asked for again."""

    code = "table_locked"
    hint = "End the transaction that holds the lock, if it takes long."


class MustLeave(ShapeError):
    """A shape that is not born yet holds too much, or holds it for too long; it leaves the stream, and joins again."""

    code = "must_leave"
    hint = "Nothing has to be done: the shape joins again by itself."


class BirthBlocked(ShapeError):
    """Transactions that the stream has told of did not become visible, and no snapshot without them will do."""

    code = "birth_blocked"
    hint = "End the transactions that are named, or let the standby that they wait for come back."


class InvalidWhere(ShapeError):
    """A where clause that is no SQL, does not fit the table, or asks for what cannot be decided outside Postgres.

    The message is `At location N: reason`, as clients know it: N counts characters from 0 in `SELECT 1 WHERE ` and the
    clause behind it; `position` counts in the clause alone. Without a location, both are missing.
    """

    code = "invalid_where"
    hint = "Mend the clause at that place; docs/where.md says what a clause may have."

    def __init__(self, reason: str, *, position: int | None = None, hint: str | None = None) -> None:
        at = "" if position is None else f"At location {len(WHERE_PREFIX) + position}: "
        super().__init__(at + reason, hint=hint)
        self.reason = reason
        self.position = position

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_where, (self.reason, self.position, self.advice)


def rebuild_where(reason: str, position: int | None, advice: str) -> InvalidWhere:
    return InvalidWhere(reason, position=position, hint=advice)


class TableChanged(ShapeError):
    """Between the request and the birth of a shape its table was altered."""

    code = "table_changed"
    hint = "Ask for the shape again: it will be defined for the table as it is now."


class BirthFailed(ShapeError):
    """A shape could not be born, however often it was tried."""

    code = "birth_failed"
    hint = "Mend what the message names, then ask for the shape again."


class BirthRefused(BirthFailed):
    """A shape that cannot be born before a person has acted: asking again, for as long as it may be, does not help."""

    code = "birth_refused"
