"""Streams recorded from real servers: every message, type family and replica identity. `record` makes them anew."""

import lzma
import struct
from pathlib import Path

FOLDER = Path(__file__).parent
_SIZE = struct.Struct(">I")


def recorded() -> list[Path]:
    return sorted(FOLDER.glob("*.frames.xz"))


def write_frames(path: Path, frames: list[bytes]) -> None:
    path.write_bytes(lzma.compress(b"".join(_SIZE.pack(len(frame)) + frame for frame in frames)))


def read_frames(path: Path) -> list[bytes]:
    data, at, frames = lzma.decompress(path.read_bytes()), 0, []
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        frames.append(data[at + _SIZE.size : at + _SIZE.size + size])
        at += _SIZE.size + size
    return frames
