"""A file that comes into being whole: written under a temporary name, synced, renamed, its folder synced."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from storage.block import BlockHeader, encode_block
from storage.disk import Disk
from storage.file_write import Block
from storage.layout import TEMPORARY_SUFFIX
from storage.scan import BlockRef


def write_whole(disk: Disk, path: str, blocks: Sequence[Block], is_wanted: Callable[[], bool]) -> list[BlockRef] | None:
    """Write blocks to a new file; a crash leaves all of it or nothing but a temporary file. Raises `OSError`.

    `is_wanted` is asked when all is synced and nobody knows of the file yet; None if it said no.
    """
    temporary = path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.remove(temporary)
    disk.create(temporary)
    refs: list[BlockRef] = []
    position = 0
    for header, payload in blocks:
        parts = encode_block(replace(header, synced_before=position), payload)
        disk.append(temporary, parts)
        # The file gets its name after its sync, so whoever finds a block finds it synced, and all before it.
        refs.append(BlockRef(path, position, BlockHeader.decode(parts[0])))
        position = refs[-1].end
    disk.sync(temporary)
    if not is_wanted():
        disk.remove(temporary)
        return None
    disk.rename(temporary, path)
    disk.sync_folder(path.rpartition("/")[0])
    return refs
