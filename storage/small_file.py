"""A small file of facts, written whole: a JSON object, and a line with its checksum, so that no byte goes unchecked."""

import zlib
from typing import Any, Final

import orjson

from storage.disk import Disk
from storage.errors import CorruptBlock, UnknownFormat
from storage.layout import TEMPORARY_SUFFIX

_CHECKSUM_SIZE: Final = len("\ncrc32 00000000\n")

_FIRST_READ_BYTES: Final = 4096
"""More than most of them have; what is longer is read again, twice as much at a time."""


def encode(facts: dict[str, Any]) -> bytes:
    """The bytes of the file; people can read them too."""
    data = orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    return data + b"\ncrc32 %08x\n" % zlib.crc32(data)


def decode(data: bytes, path: str) -> dict[str, Any]:
    """The facts. Raises `UnknownFormat` for what is no such file, `CorruptBlock` for one that was changed."""
    text, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
    if not checksum.startswith(b"\ncrc32 "):
        raise UnknownFormat("the file does not end with its checksum", path=path)
    if checksum != b"\ncrc32 %08x\n" % zlib.crc32(text):
        raise CorruptBlock("the file does not match its checksum", path=path)
    try:
        facts = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise UnknownFormat("the file is not JSON", path=path) from None
    if not isinstance(facts, dict):
        raise UnknownFormat("the file holds no facts by name", path=path)
    return facts


def content(disk: Disk, path: str) -> bytes:
    """All of one file: asking for its size first would cut another one that took the name meanwhile."""
    size = _FIRST_READ_BYTES
    while len(data := disk.read(path, 0, size)) == size:
        size *= 2
    return data


def read(disk: Disk, path: str) -> dict[str, Any]:
    """The facts in a file, as `decode` gives them. Raises `OSError`, too."""
    return decode(content(disk, path), path)


def write(disk: Disk, path: str, facts: dict[str, Any]) -> None:
    """Write or replace the file, on disk when this returns; a crash leaves the old one or the new. Raises `OSError`."""
    temporary = path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.remove(temporary)
    disk.create(temporary)
    disk.append(temporary, [encode(facts)])
    disk.sync(temporary)
    disk.rename(temporary, path)
    disk.sync_folder(path.rpartition("/")[0])
