"""How a lake was made: its format, and which shapes it has. Fixed by whoever makes the first step in a folder."""

from collections.abc import Iterable
from typing import Final

from storage.disk import Disk
from storage.errors import UnknownFormat
from storage.lake.errors import OtherSettings
from storage.lake.lake_layout import SETTINGS
from storage.lake.records import create_once, read_record

FORMAT: Final = 1


def settle(lake: Disk, shapes: Iterable[str] | None, unique: str) -> frozenset[str] | None:
    """The shapes of the lake, None for all there are; makes the lake if there is none.

    Without a wish it is what the lake has; another wish than the first is refused, since versions would lose tables.
    """
    wish = None if shapes is None else sorted(set(shapes))
    create_once(lake, SETTINGS, {"format": FORMAT, "shapes": wish}, unique)
    found = read_record(lake, SETTINGS)
    assert found is not None, "it was just made"
    if found.get("format") != FORMAT:
        raise UnknownFormat("the lake has another format", found=found.get("format"), known=FORMAT)
    known = found["shapes"]
    if wish is not None and wish != known:
        raise OtherSettings("the lake has other shapes", asked=wish, has="all" if known is None else known)
    return None if known is None else frozenset(known)
