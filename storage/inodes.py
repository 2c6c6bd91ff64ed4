"""Files and folders as a crash sees them: what the program last saw, and what could be found instead. Pure.

A file keeps its changes since it was last synced, a folder the versions of each name since then. What a crash leaves
is picked among them by a function: it gets a count of possibilities and returns the index of one, 0 for the oldest
(what the last sync made certain), the last for the newest (what the program saw).

Invariants of what a crash leaves:
    what a sync covered is there: a file's bytes and size by its own, a folder's names by the folder's
    each sector of a file holds what it held at the file's last sync or after some change since, padded with zeros
    a file's size is one that it had at its last sync or since; inside an append, anything up to the append's end
    each name stands for what it stood for at its folder's last sync or after some change since
    a file that had a certain name does not lose it by a rename before the new name is there
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from storage.limits import SECTOR_BYTES

Choose = Callable[[int], int]
"""Gets a count of possibilities, oldest first, and returns the index of one."""


class Change(NamedTuple):
    """A file changes only at its end: from `position` on, `removed` became `added`, one of which is empty."""

    position: int
    removed: bytes
    added: bytes

    @property
    def sectors(self) -> range:
        """The numbers of the sectors that it touched."""
        end = self.position + len(self.removed) + len(self.added)
        return range(self.position // SECTOR_BYTES, -(-end // SECTOR_BYTES))


@dataclass(eq=False, slots=True)
class File:
    """An inode: the bytes that the program sees, and the changes that lead to them from those that are certain."""

    content: bytearray = field(default_factory=bytearray)
    unsynced: list[Change] = field(default_factory=list)
    number: int = field(default_factory=count().__next__)
    """No other file has it, nor ever had."""
    changes: int = 0

    def change(self, position: int, added: bytes) -> None:
        """Replace everything from `position` on."""
        removed = bytes(self.content[position:])
        if removed or added:
            self.content[position:] = added
            self.unsynced.append(Change(position, removed, added))
            self.changes += 1

    def sync(self) -> None:
        """What the program sees is certain."""
        self.unsynced.clear()

    def after_crash(self, choose: Choose) -> "File":
        """A file that a crash could make of this one."""
        if not self.unsynced:
            return File(bytearray(self.content))
        state = bytearray(self.content)
        for change in reversed(self.unsynced):
            state[change.position :] = change.removed
        size = self._size_after_crash(len(state), choose)
        found = state[:size].ljust(size, b"\0")
        sectors_of = self._sectors_after_crash(choose)
        for index, change in enumerate(self.unsynced):
            state[change.position :] = change.added
            for sector in sectors_of.get(index, ()):
                start, end = sector * SECTOR_BYTES, min((sector + 1) * SECTOR_BYTES, size)
                if start < end:
                    found[start:end] = state[start:end].ljust(end - start, b"\0")
        return File(found)

    def _size_after_crash(self, synced_size: int, choose: Choose) -> int:
        version = choose(len(self.unsynced) + 1)
        if version == 0:
            return synced_size
        change = self.unsynced[version - 1]
        return change.position + 1 + choose(len(change.added)) if change.added else change.position

    def _sectors_after_crash(self, choose: Choose) -> dict[int, list[int]]:
        """For each change, the sectors that reached the disk after it and before the next change of theirs."""
        changes_of: dict[int, list[int]] = {}
        for index, change in enumerate(self.unsynced):
            for sector in change.sectors:
                changes_of.setdefault(sector, []).append(index)
        sectors_of: dict[int, list[int]] = {}
        for sector, indexes in changes_of.items():
            version = choose(len(indexes) + 1)
            if version > 0:
                sectors_of.setdefault(indexes[version - 1], []).append(sector)
        return sectors_of


@dataclass(eq=False, slots=True)
class Version:
    """What a name stood for, from one change of it to the next."""

    node: "File | Folder | None"
    needs: "Sequence[Need]" = ()
    """If a rename took the name away: the new name, which must be there then, and the folders above that."""


@dataclass(eq=False, slots=True)
class Folder:
    """The names that the program sees, and the versions of those that are not certain, the certain one first."""

    names: "dict[str, File | Folder]" = field(default_factory=dict)
    unsynced: dict[str, list[Version]] = field(default_factory=dict)

    def change(self, name: str, node: "File | Folder | None", needs: "Sequence[Need]" = ()) -> None:
        """Let the name stand for the node, or for nothing."""
        self.unsynced.setdefault(name, [Version(self.names.get(name))]).append(Version(node, needs))
        if node is None:
            del self.names[name]
        else:
            self.names[name] = node

    def sync(self) -> None:
        """The names that the program sees are certain, and what they need elsewhere is too."""
        for name, versions in list(self.unsynced.items()):
            self.sync_name(name, versions[-1])

    def sync_name(self, name: str, version: Version) -> None:
        """The name is certain to be this version or a later one."""
        versions = self.unsynced.get(name, [])
        if version not in versions:
            return  # it was certain before
        index = versions.index(version)
        if version is versions[-1]:
            del self.unsynced[name]
        else:
            self.unsynced[name] = versions[index:]
        for certain in versions[: index + 1]:
            for need in certain.needs:
                need.folder.sync_name(need.name, need.version)


class Need(NamedTuple):
    """A name that must be there, in this version or a later one, before another may be gone."""

    folder: Folder
    name: str
    version: Version


_Picked = dict[Folder, dict[str, int]]


def after_crash(root: Folder, choose: Choose) -> Folder:
    """A tree that a crash could make of this one; nothing in it is uncertain."""
    picked = _picked(root, choose)
    files: dict[File, File] = {}  # so that a file with two names stays one file

    def found(node: File | Folder) -> File | Folder:
        if isinstance(node, Folder):
            return found_folder(node)
        if node not in files:
            files[node] = node.after_crash(choose)
        return files[node]

    def found_folder(folder: Folder) -> Folder:
        uncertain = {name: folder.unsynced[name][index].node for name, index in picked[folder].items()}
        nodes = {**folder.names, **uncertain}
        return Folder({name: found(node) for name, node in nodes.items() if node is not None})

    return found_folder(root)


def _picked(root: Folder, choose: Choose) -> _Picked:
    """The index of a version for each uncertain name; later ones where a rename would else have lost its file."""
    picked: _Picked = {}
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        picked[folder] = {name: choose(len(versions)) for name, versions in folder.unsynced.items()}
        waiting += (node for node in _nodes(folder) if isinstance(node, Folder) and node not in picked)

    def keep_needs(folder: Folder, name: str) -> None:
        for version in folder.unsynced[name][: picked[folder][name] + 1]:
            for need in version.needs:
                versions = need.folder.unsynced.get(need.name, [])
                index = versions.index(need.version) if need.version in versions else 0
                if need.folder in picked and index > picked[need.folder].get(need.name, index):
                    picked[need.folder][need.name] = index
                    keep_needs(need.folder, need.name)

    for folder, names in picked.items():
        for name in names:
            keep_needs(folder, name)
    return picked


def _nodes(folder: Folder) -> "Iterator[File | Folder | None]":
    """Everything that a name in the folder stands for or could stand for after a crash."""
    yield from folder.names.values()
    for versions in folder.unsynced.values():
        yield from (version.node for version in versions)
