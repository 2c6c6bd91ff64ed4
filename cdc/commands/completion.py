"""The command `shapelog completion`: what a shell needs to complete our commands and options."""

import os
from enum import StrEnum
from typing import Annotated, Final

import typer

VARIABLE: Final = "_SHAPELOG_COMPLETE"
"""Set by the shell's script when it asks for completions."""

_ZSH_HEAD: Final = "#compdef shapelog"
_ZSH_BEGIN: Final = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }"
"""A zsh without settings of its own has not begun its completion, and would not know what to do with the rest."""


def prepare() -> None:
    """Let the program answer a shell that asks."""
    if VARIABLE in os.environ:
        from typer.completion import get_completion_inspect_parameters

        get_completion_inspect_parameters()  # it makes the shells known


class Shell(StrEnum):
    """Those that are supported."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print the script with which a shell completes commands and options.

    \b
      source <(shapelog completion bash)
      source <(shapelog completion zsh)
      shapelog completion fish > ~/.config/fish/completions/shapelog.fish
    """  # noqa: D301 - typer wants the control character itself
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # it has no other public name

    script = get_completion_script(prog_name="shapelog", complete_var=VARIABLE, shell=shell.value)
    if shell is Shell.ZSH:
        script = script.replace(_ZSH_HEAD, f"{_ZSH_HEAD}\n{_ZSH_BEGIN}", 1)
    typer.echo(script)
