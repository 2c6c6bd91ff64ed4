"""What a version is: the G that all its tables stand at, and for each table the version of its Delta log.

A version's record is written when all its tables are on the disk, by whoever comes first; two who finish the same cut
write the same. Pure, but for the two functions that read and write records.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from storage.disk import Disk
from storage.errors import UnknownFormat
from storage.lake.lake_layout import CHANGES, SIDES, STATE, VERSIONS, numbered_path
from storage.lake.records import create_once, read_record, record_numbers
from storage.offset import LogOffset
from storage.progress import Incarnation

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class SideVersion:
    """One of a shape's two tables."""

    delta: int
    """The version of its Delta log."""
    cut: int
    """The last cut that changed it: the number of its view."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A shape's tables in a version."""

    name: str
    generation: int
    log: int
    handle: str
    upto: LogOffset
    state: SideVersion | None
    """None for a shape without a key, or one that tells changes only."""
    changes: SideVersion | None
    """None in a lake that keeps states only."""
    quarantined: int
    """Values that were quarantined since the log's beginning, counted when they came in."""

    def side(self, name: str) -> SideVersion | None:
        """`state` or `changes`."""
        return {STATE: self.state, CHANGES: self.changes}[name]


@dataclass(frozen=True, slots=True)
class Version:
    """A moment of the database, in all tables."""

    number: int
    incarnation: Incarnation
    lsn: int
    """G: every row of a transaction below it, and no other."""
    commit_time: int
    """Microseconds since 1970, by Postgres' clock, of the last commit below G."""
    tables: tuple[TableVersion, ...]

    def table(self, name: str) -> TableVersion | None:
        """The table of this name."""
        return next((table for table in self.tables if table.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """For the record."""
        tables = [asdict(table) | {"upto": str(table.upto)} for table in self.tables]
        return asdict(self) | {"format": FORMAT, "incarnation": str(self.incarnation), "tables": tables}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        if content.get("format") != FORMAT:
            raise UnknownFormat("the version has another format", found=content.get("format"), known=FORMAT)
        facts = {name: value for name, value in content.items() if name != "format"}
        try:
            tables = tuple(
                TableVersion(
                    **table
                    | {"upto": LogOffset.parse(table["upto"])}
                    | {side: None if table[side] is None else SideVersion(**table[side]) for side in SIDES}
                )
                for table in facts["tables"]
            )
            return cls(**facts | {"incarnation": Incarnation.parse(facts["incarnation"]), "tables": tables})
        except (KeyError, TypeError, ValueError) as error:
            raise UnknownFormat(f"a field of the version is wrong or missing: {error!r}") from None


def read_version(lake: Disk, number: int) -> Version | None:
    """A version; None if there is none of this number, or not any more."""
    content = read_record(lake, numbered_path(VERSIONS, number))
    return None if content is None else Version.from_json(content)


def latest_version(lake: Disk) -> Version | None:
    """The newest version; None if there is none yet."""
    for number in reversed(record_numbers(lake, VERSIONS)):
        if (version := read_version(lake, number)) is not None:
            return version
    return None


def publish(lake: Disk, version: Version, unique: str) -> Version:
    """Make a version known; if somebody was first, theirs."""
    create_once(lake, numbered_path(VERSIONS, version.number), version.to_json(), unique)
    return read_version(lake, version.number) or version
