"""What a shape with a name may be called. Pure.

The name is the shape's table in the lake, so it is part of the names of files: letters of any script and digits, and
_ . - between them.
"""

import re
from collections.abc import Callable
from itertools import count
from typing import Final

from shapes.errors import InvalidShapeName
from shapes.identifiers import DEFAULT_SCHEMA
from shapes.limits import SHAPE_NAME_BYTES_MAX

_NAME: Final = re.compile(r"\w[\w.-]*")
_FOREIGN: Final = re.compile(r"[^\w.-]")


def check_name(name: str) -> None:
    """Raise `InvalidShapeName` for what cannot be a name."""
    if not _NAME.fullmatch(name):
        raise InvalidShapeName(f"{name!r} cannot be the name of a shape")
    if len(name.encode()) > SHAPE_NAME_BYTES_MAX:
        raise InvalidShapeName(
            f"a name of {len(name.encode())} bytes is above the limit of {SHAPE_NAME_BYTES_MAX}",
            hint="Choose a shorter one.",
        )


def default_name(schema: str, table: str) -> str:
    """The table's name, with its schema unless that is the usual one; what no name may have becomes `_`."""
    plain = table if schema == DEFAULT_SCHEMA else f"{schema}.{table}"
    name = _FOREIGN.sub("_", plain)
    return _cut(name if _NAME.fullmatch(name) else f"_{name}", SHAPE_NAME_BYTES_MAX)


def free_name(wanted: str, is_free: Callable[[str], bool]) -> str:
    """The wanted name with the smallest number behind it that makes it free."""
    for number in count(2):
        suffix = f"_{number}"
        name = _cut(wanted, SHAPE_NAME_BYTES_MAX - len(suffix)) + suffix
        if is_free(name):
            return name
    raise AssertionError("numbers do not end")


def _cut(name: str, bytes_max: int) -> str:
    return name.encode()[:bytes_max].decode(errors="ignore")
