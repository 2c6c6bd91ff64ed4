"""How a lake was made: its format, and what it has. Fixed by whoever makes the first step in a folder."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from storage.catalog_records import Shape
from storage.disk import Disk
from storage.errors import UnknownFormat
from storage.lake.errors import OtherSettings
from storage.lake.lake_layout import CUTS, DELTA, LOADS, SETTINGS, VERSIONS
from storage.lake.records import create_once, read_record
from storage.lake.table_schema import TableSchema

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """What a lake has."""

    shapes: frozenset[str] | None = None
    """Names of shapes; None is all."""
    has_history: bool = True
    """Tables have `changes` beside their state."""
    adopts: bool = False
    """Of this run, not of the lake: it may go over to another data folder (`origin`)."""

    def wants(self, shape: Shape) -> bool:
        """Whether a shape has a table here."""
        if not shape.name or (self.shapes is not None and shape.name not in self.shapes):
            return False
        return self.has_history or TableSchema.of_definition(shape.definition).has_state


def settle(
    lake: Disk, shapes: Iterable[str] | None, unique: str, *, state_only: bool = False, adopts: bool = False
) -> LakeSettings:
    """The lake's settings; makes the lake if there is none."""
    if (found := known_settings(lake, shapes, state_only=state_only)) is None:
        wish = None if shapes is None else sorted(set(shapes))
        made: dict[str, Any] = {"format": FORMAT, "shapes": wish} | ({"history": False} if state_only else {})
        create_once(lake, SETTINGS, made, unique)
        found = known_settings(lake, shapes, state_only=state_only)
    assert found is not None, "it was just made"
    for folder in (CUTS, LOADS, VERSIONS, DELTA):
        lake.make_folder(folder)
    lake.sync_folder("")  # records are synced in these, which a power cut would take along
    return replace(found, adopts=adopts)


def known_settings(lake: Disk, shapes: Iterable[str] | None, *, state_only: bool) -> LakeSettings | None:
    """The settings of a lake that is there.

    Without a wish it is what the lake has; another wish than the first is refused, since versions would lose tables.
    """
    found = read_record(lake, SETTINGS)
    if found is None:
        return None
    if found.get("format") != FORMAT:
        raise UnknownFormat("the lake has another format", found=found.get("format"), known=FORMAT)
    wish, known = None if shapes is None else sorted(set(shapes)), found["shapes"]
    has_history = bool(found.get("history", True))
    if wish is not None and wish != known:
        raise OtherSettings("the lake has other shapes", asked=wish, has="all" if known is None else known)
    if state_only and has_history:
        raise OtherSettings("the lake has histories", asked="states only", has="states and changes")
    return LakeSettings(None if known is None else frozenset(known), has_history)
