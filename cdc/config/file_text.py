"""The text of a settings file: flat TOML, each key the name of a setting. Pure.

Invariants:
    a key that is no setting is an error that names the nearest one: a mistyped setting never passes in silence
    every error says in which line it is
"""

import difflib
import re
import tomllib
from collections.abc import Container, Mapping
from dataclasses import dataclass

from cdc.config.settings import SETTINGS, Setting, Value
from cdc.errors import SettingInvalid

_NEAR = 0.6
"""How alike two names are before one is offered for the other; 1 is the same."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What a file says, and in which lines."""

    name: str
    values: Mapping[str, Value]
    lines: Mapping[str, int]

    def where(self, setting: str) -> str:
        """Such as `shapelog.toml:3`."""
        line = self.lines.get(setting)
        return self.name if line is None else f"{self.name}:{line}"


def read_settings(text: str, name: str, settings: Mapping[str, Setting] = SETTINGS) -> FileSettings:
    """All that a file says; raises `SettingInvalid`."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingInvalid(
            f"{name} is no TOML: {error}", hint="Write one setting a line, as in port = 3000; texts stand in quotes."
        ) from None
    lines = _lines_of(text, found.keys())
    values: dict[str, Value] = {}
    for key, value in found.items():
        where = f"{name}:{lines[key]}" if key in lines else name
        if key not in settings:
            raise SettingInvalid(f"{where}: there is no setting {key!r}{nearest(key, settings)}")
        try:
            values[key] = settings[key].checked(value)
        except SettingInvalid as error:
            raise SettingInvalid(f"{where}: {error.message}") from None
    return FileSettings(name, values, lines)


def nearest(name: str, known: Mapping[str, object]) -> str:
    """What may have been meant."""
    alike = difflib.get_close_matches(name.lower().replace("_", "-"), known, 1, _NEAR)
    return f"; did you mean {alike[0]}?" if alike else ""


def _lines_of(text: str, keys: Container[str]) -> dict[str, int]:
    """The line of each key, as far as it stands there plainly: the first one that begins with it."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"""\s*\[*\s*["']?([\w-]+)""", line)
        if found and found[1] in keys:
            lines.setdefault(found[1], number)
    return lines
