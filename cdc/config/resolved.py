"""The value of each setting and where it came from: flag, then variable, then file, then default. Pure.

Commands take the same steps through their options; `test_config` compares the two.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cdc.config.file_text import FileSettings, nearest
from cdc.config.settings import SETTINGS, Setting, Value, variable_of
from cdc.errors import SettingInvalid

MASK: Final = "****"
"""Stands for a secret that is set."""

DEFAULT: Final = "default"
PREFIX: Final = "SHAPELOG_"

CONFIG_VARIABLE: Final = "SHAPELOG_CONFIG"
"""The file, where no flag names it."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """One setting as it holds."""

    setting: Setting
    value: Value
    source: str
    """A flag, a variable, a file and its line, or `default`."""


def resolve(flags: Mapping[str, str], environment: Mapping[str, str], file: FileSettings | None) -> list[Resolved]:
    """Every setting; raises `SettingInvalid`. An empty variable is one that is not set."""
    return [_resolved(setting, flags, environment, file) for setting in SETTINGS.values()]


def unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """A line for each of our variables that nothing reads: no error, since others may set them (Kubernetes does)."""
    known = {variable for setting in SETTINGS.values() for variable in setting.variables} | {CONFIG_VARIABLE}
    by_variable = {variable_of(name): name for name in SETTINGS}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            near = nearest(name.removeprefix(PREFIX), SETTINGS)
            for variable, setting in by_variable.items():
                near = near.replace(f" {setting}?", f" {variable}?")
            yield f"{name} is the variable of no setting{near}"


def as_facts(resolved: list[Resolved], shown: Mapping[str, str]) -> list[dict[str, Any]]:
    """For programs, with secrets masked; `shown` says how some are shown instead."""
    return [
        {"setting": one.setting.name, "value": _public(one, shown), "source": one.source, "right": one.setting.right}
        for one in resolved
    ]


def _public(one: Resolved, shown: Mapping[str, str]) -> str | int | float | bool | None:
    if one.setting.is_secret and one.value:
        return shown.get(one.setting.name, MASK)
    return one.value if isinstance(one.value, str | int | float | bool | None) else str(one.value)


def _resolved(
    setting: Setting, flags: Mapping[str, str], environment: Mapping[str, str], file: FileSettings | None
) -> Resolved:
    if setting.name in flags:
        return Resolved(setting, _read(setting, flags[setting.name], f"--{setting.name}"), f"--{setting.name}")
    for variable in setting.variables:
        if environment.get(variable):
            return Resolved(setting, _read(setting, environment[variable], variable), variable)
    if file is not None and setting.name in file.values:
        return Resolved(setting, file.values[setting.name], file.where(setting.name))
    return Resolved(setting, setting.default, DEFAULT)


def _read(setting: Setting, text: str, where: str) -> Value:
    try:
        return setting.read(text)
    except SettingInvalid as error:
        raise SettingInvalid(f"{where}: {error.message}") from None
