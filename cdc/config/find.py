"""The settings file that holds: the one that is named, the one in the present folder, or the user's own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cdc.config.file_text import FileSettings, read_settings
from cdc.config.resolved import CONFIG_VARIABLE
from cdc.errors import SettingInvalid
from cdc.limits import SETTINGS_FILE_BYTES_MAX

FILE_NAME: Final = "shapelog.toml"


def find_file(named: Path | None, environment: Mapping[str, str]) -> FileSettings | None:
    """Its settings; None if there is none. One that is named must be there."""
    if named is None and environment.get(CONFIG_VARIABLE):
        named = Path(environment[CONFIG_VARIABLE])
    if named is not None:
        return _read(named)
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or "/") / ".config")
    for place in (Path(FILE_NAME), Path(home) / "shapelog" / FILE_NAME):
        if place.is_file():
            return _read(place)
    return None


def _read(place: Path) -> FileSettings:
    try:
        with place.open("rb") as file:
            content = file.read(SETTINGS_FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingInvalid(f"{place} cannot be read: {reason}", hint="Name another file with --config.") from None
    if len(content) > SETTINGS_FILE_BYTES_MAX:
        raise SettingInvalid(f"{place} has more than {SETTINGS_FILE_BYTES_MAX:,} bytes: it is no file of settings")
    try:
        return read_settings(content.decode(), str(place))
    except UnicodeDecodeError:
        raise SettingInvalid(f"{place} is no UTF-8 text", hint="Save it as UTF-8.") from None
