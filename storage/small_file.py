"""A small file of facts, written whole: a JSON object, and a line with its checksum, so that no byte goes unchecked."""

import zlib
from typing import Any, Final

import orjson

from storage.disk import Disk
from storage.errors import CorruptBlock, UnknownFormat
from storage.layout import TEMPORARY_SUFFIX

_CHECKSUM_SIZE: Final = len("\ncrc32 00000000\n")


def encode(facts: dict[str, Any]) -> bytes:
    """The bytes of the file; people can read them too."""
    data = orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    return data + b"\ncrc32 %08x\n" % zlib.crc32(data)


def decode(content: bytes, path: str) -> dict[str, Any]:
    """The facts. Raises `UnknownFormat` for what is no such file, `CorruptBlock` for one that was changed."""
    data, checksum = content[:-_CHECKSUM_SIZE], content[-_CHECKSUM_SIZE:]
    if not checksum.startswith(b"\ncrc32 "):
        raise UnknownFormat("the file does not end with its checksum", path=path)
    if checksum != b"\ncrc32 %08x\n" % zlib.crc32(data):
        raise CorruptBlock("the file does not match its checksum", path=path)
    try:
        facts = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise UnknownFormat("the file is not JSON", path=path) from None
    if not isinstance(facts, dict):
        raise UnknownFormat("the file holds no facts by name", path=path)
    return facts


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
