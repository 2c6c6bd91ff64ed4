"""The settings file as the defaults of options: a flag goes before a variable, and a variable before the file.

Invariant: a file is read only for commands that have settings, and never to print help: a broken one hides little.
"""

import os
from pathlib import Path
from typing import Any

import typer

from cdc.config.file_text import FileSettings
from cdc.config.find import find_file
from cdc.config.options import setting_of
from cdc.config.settings import Kind

_READERS = ("config",)
"""Commands that have no settings of their own, but look at all of them."""


def read_config(context: typer.Context, named: Path | None) -> None:
    """Give what the file says to the command that comes; `context.obj` has what was typed, and the file afterwards."""
    name = context.invoked_subcommand
    program: Any = context.command
    command = program.commands.get(name)
    if command is None or not (name in _READERS or _has_settings(command)) or "--help" in context.obj:
        return
    file = find_file(named, os.environ)
    if file is not None:
        context.obj = file
        context.default_map = defaults_from(program, file)


def defaults_from(command: Any, file: FileSettings) -> dict[str, Any]:  # noqa: ANN401 - the library's class
    """What the file says to a command, and to those below it, as the library takes it."""
    found: dict[str, Any] = {}
    for parameter in command.params:
        setting = setting_of(parameter)
        if setting is not None and setting.name in file.values:
            value = file.values[setting.name]
            found[parameter.name] = str(value) if setting.kind is Kind.PATH else value
    for name, below in getattr(command, "commands", {}).items():
        found[name] = defaults_from(below, file)
    return found


def _has_settings(command: Any) -> bool:  # noqa: ANN401 - the library's class
    return any(map(setting_of, command.params)) or any(map(_has_settings, getattr(command, "commands", {}).values()))
