"""Minor releases of Postgres with known faults of logical decoding, each with the commit that mends it. Pure data.

Only what can be looked up: the commit names its authors, the discussion and what it mends. Where the release notes of a
minor release do not name it, the first good release is the first one made after the commit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Bug:
    """A fault of logical decoding that minor releases mend."""

    text: str
    source: str
    """The commit that mends it, in Postgres's own repository."""
    releases: Mapping[int, tuple[int, int]]
    """For each major version, the first minor release that has it and the first that has it not."""

    def is_in(self, version: int) -> bool:
        """Whether a server has it, by its `server_version_num`."""
        major, minor = divmod(version, 10_000)
        bad, good = self.releases.get(major, (0, 0))
        return bad <= minor < good


STALE_PUBLICATION: Final = Bug(
    "changes can be lost when a table is published, or altered under a weak lock, while others write to it",
    "https://postgr.es/c/4909b38af",
    {14: (0, 18), 15: (0, 13), 16: (0, 9), 17: (0, 5)},
)

BUGS: Final = (
    Bug(
        "when decoding goes on after a restart, changes made beside DDL can be decoded with the wrong catalog",
        "https://postgr.es/c/7f13ac8123",
        {14: (0, 6)},
    ),
    Bug(
        "a slot that is made while another one is read may begin amid a transaction, and bring its second half alone",
        "https://postgr.es/c/bb19b70081",
        {14: (0, 13), 15: (0, 8), 16: (0, 4)},
    ),
    STALE_PUBLICATION,
    Bug(
        "much DDL beside open transactions can end decoding with a memory allocation failure",
        "https://postgr.es/c/d87d07b7a",
        {14: (18, 19), 15: (13, 14), 16: (9, 10), 17: (5, 6)},
    ),
    Bug(
        "after a crash of the server, decoding can wait at a half-written record until something else is written",
        "https://postgr.es/c/d3917d8f1",
        {14: (0, 19), 15: (0, 14), 16: (0, 10), 17: (0, 6)},
    ),
)
