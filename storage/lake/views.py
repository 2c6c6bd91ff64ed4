"""Plain Parquet for those who know no table format: an immutable folder of hard links for each version of a table.

A folder is built whole under a name of its own, then gets its name; then one link, `tables/<name>/state`, is replaced
in one step. Who opened the old folder goes on reading it; who opens the link gets one version or the next, never some
of both.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from storage.disk import LocalDisk
from storage.lake.delta_log import DeltaLog
from storage.lake.errors import PathTaken
from storage.lake.lake_layout import SIDES, TABLES, link_path, side_folder, view_cut, view_folder
from storage.lake.parquet_files import sync_file
from storage.lake.versions import TableVersion, Version, latest_version
from storage.layout import TEMPORARY_SUFFIX


class Views:
    """What the paths under `tables/` lead to, kept at the newest version by one writer."""

    def __init__(self, lake: LocalDisk, log_of: Callable[[Path], DeltaLog], unique: str) -> None:
        self._lake = lake
        self._root = Path(lake.root).resolve()
        self._log_of = log_of
        self._unique = unique
        self.shown = 0
        """The version that was shown last."""
        self._links: dict[Path, str | None] = {}
        """Where each link leads then; None where there is none."""

    def look_again(self) -> None:
        """Show the newest version once more if a link leads elsewhere: a slow twin died right behind an older view.

        Else whoever reads plain Parquet would have that one until there is another version, which a quiet database
        may not have for days. A look is a system call for each link.
        """
        if any(_target(link) != known for link, known in self._links.items()):
            self.show()

    def show(self) -> None:
        """Show the newest version: again, perhaps, after a crash."""
        while (version := latest_version(self._lake)) is not None:
            for table in version.tables:
                for side in SIDES:
                    of_version = table.side(side)
                    if of_version is not None and shown_cut(self._root, table.name, side) != of_version.cut:
                        self._show(table, side)
            for name in self._lake.names(TABLES):
                known = version.table(name)
                for side in SIDES:
                    if known is None or known.side(side) is None:  # a table that lost its key has no state any more
                        hide_view(self._root, name, side)
            newest = latest_version(self._lake)
            if newest is None or newest.number == version.number:
                self.shown = version.number
                self._links = self._links_of(version)
                return  # a slow twin may have shown an older one: whoever sees that shows the newest again

    def _links_of(self, version: Version) -> dict[Path, str | None]:
        """Where each link leads if a version is shown."""
        found = dict[Path, str | None]()
        for name in self._lake.names(TABLES):
            table = version.table(name)
            for side in SIDES:
                of_version, link = None if table is None else table.side(side), self._root / link_path(name, side)
                found[link] = None if of_version is None else _relative(self._root, name, side, of_version.cut)
        return found

    def _show(self, table: TableVersion, side: str) -> None:
        of_version = table.side(side)
        assert of_version is not None, "the side is there"
        files = self._log_of(self._root / side_folder(table.name, table.generation, side)).files_at(of_version.delta)
        build_view(self._root, table.name, table.generation, side, of_version.cut, files, self._unique)
        show_view(self._root, table.name, side, of_version.cut, self._unique)


def _relative(lake: Path, table: str, side: str, cut: int) -> str:
    """What a link to a view says."""
    return os.path.relpath(lake / view_folder(table, side, cut), (lake / link_path(table, side)).parent)


def _target(link: Path) -> str | None:
    """What a link says; None if there is none, or something of somebody else's."""
    try:
        return os.readlink(link)  # noqa: PTH115 - there may be thousands, and each look takes them all
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL):
            raise
        return None


def build_view(lake: Path, table: str, generation: int, side: str, cut: int, files: Sequence[str], unique: str) -> None:
    """A folder with links to these files; nothing happens if it is there."""
    target = lake / view_folder(table, side, cut)
    if target.exists():
        return
    temporary = target.with_name(f"{target.name}.{unique}{TEMPORARY_SUFFIX}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    source = lake / side_folder(table, generation, side)
    for name in files:
        os.link(source / name, temporary / name)
    sync_file(temporary)
    try:
        temporary.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(temporary)  # a twin was first, with the same files
    sync_file(target.parent)


def shown_cut(lake: Path, table: str, side: str) -> int:
    """The cut whose view the link leads to; 0 without one: a crash may leave the link, and not its folder."""
    link = lake / link_path(table, side)
    try:
        return (view_cut(link.readlink().name, side) or 0) if link.exists() else 0
    except OSError:
        return 0


def show_view(lake: Path, table: str, side: str, cut: int, unique: str) -> None:
    """Let the link lead to a view, in one step. The one before is as old as it is not shown: somebody may list it."""
    link = lake / link_path(table, side)
    tables = link.parent.parent
    for path, is_ours in ((tables, tables.is_dir()), (link.parent, link.parent.is_dir()), (link, link.is_symlink())):
        if os.path.lexists(path) and not is_ours:  # a link that leads nowhere is there, too
            raise PathTaken("the lake needs this path, and did not make what is there", path=str(path))
    before = link.resolve()
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f"{link.name}.{unique}{TEMPORARY_SUFFIX}")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(_relative(lake, table, side, cut))
    temporary.replace(link)
    with contextlib.suppress(FileNotFoundError):
        os.utime(before)
    sync_file(link.parent)


def hide_view(lake: Path, table: str, side: str) -> None:
    """Take the link away: the newest version has no such table, or not this side of it."""
    link = lake / link_path(table, side)
    if _target(link) is not None:
        link.unlink(missing_ok=True)
