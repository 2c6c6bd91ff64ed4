"""Settings as options of commands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import typer

from cdc.config.settings import SETTINGS, Setting

_BY_VARIABLE: Final = {setting.variables[0]: setting for setting in SETTINGS.values()}


def option(name: str, *flags: str, **more: Any) -> Any:  # noqa: ANN401 - typer's own class is not exported
    """The option of a setting; `flags` are other names for it, `more` is what this command says otherwise."""
    setting = SETTINGS[name]
    given: dict[str, Any] = {
        # One as a text, not as a list: the library shows it as it is where the option is missing.
        "envvar": setting.variables[0] if len(setting.variables) == 1 else list(setting.variables),
        "help": setting.text,
        "metavar": setting.metavar,
        "min": setting.low,
        "max": setting.high,
    }
    if setting.absent is not None:
        given["show_default"] = setting.absent
    elif setting.default in (None, ""):
        given["show_default"] = False
    return typer.Option(*flags, f"--{name}", **given | more)


def default(name: str) -> Any:  # noqa: ANN401 - each setting has its own type, and options say it
    """What holds where nobody says anything."""
    return SETTINGS[name].default


def setting_of(parameter: Any) -> Setting | None:  # noqa: ANN401 - the library's class
    """The setting that an option stands for, if any: it reads that setting's variable."""
    variables = parameter.envvar if isinstance(parameter.envvar, list) else [parameter.envvar]
    return next((_BY_VARIABLE[variable] for variable in variables if variable in _BY_VARIABLE), None)


def flags_in(command: Any, arguments: list[str]) -> Mapping[str, str]:  # noqa: ANN401 - as above
    """The settings among arguments of a command, as they were written; what is no option of it is refused."""
    context = typer.Context(command, info_name=command.name)
    given, rest, _ = command.make_parser(context).parse_args(list(arguments))
    if rest:
        context.fail(f"Got unexpected extra argument ({rest[0]})")
    names = {one.name: setting.name for one in command.params if (setting := setting_of(one)) is not None}
    return {names[name]: _text(value) for name, value in given.items() if name in names and _is_given(value)}


def _is_given(value: object) -> bool:
    return isinstance(value, str | bool | int | float | Path)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
