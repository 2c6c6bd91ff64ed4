"""Completion: the scripts ask the program as each shell does, and it answers with commands, options and choices."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "#!{python}\nfrom cdc.cli import main\nmain()\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program in it, to be found by its name."""
    made = tmp_path_factory.mktemp("bin")
    (made / "shapelog").write_text(PROGRAM.format(python=sys.executable))
    (made / "shapelog").chmod(0o755)
    return made


def run(folder: Path, *command: str, **environment: str) -> str:
    path = f"{folder}:{os.environ['PATH']}"
    known = os.environ | {"PATH": path, "PYTHONPATH": str(Path.cwd())} | environment
    answer = subprocess.run(command, env=known, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_bash_completes(folder: Path) -> None:
    """The script in a real shell: a command, a command below another, an option, and a choice."""
    script = run(folder, "shapelog", "completion", "bash")
    for words, wanted in [
        (["shapelog", "pref"], {"preflight"}),
        (["shapelog", "shapes", "r"], {"remove"}),
        (["shapelog", "serve", "--wal-b"], {"--wal-budget"}),
        (["shapelog", "completion", ""], {"bash", "zsh", "fish"}),
        (["shapelog", "nothing-begins-so"], set()),
    ]:
        assign = f"COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}"
        asked = f'{script}\n{assign}\n_shapelog_completion shapelog\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
        assert set(run(folder, "bash", "--norc", "-c", asked).split()) == wanted


def test_zsh_and_fish_are_answered(folder: Path) -> None:
    """As their scripts ask; the shells themselves are on few machines."""
    asked = {"_TYPER_COMPLETE_ARGS": "shapelog pref"}
    assert "preflight" in run(folder, "shapelog", _SHAPELOG_COMPLETE="complete_zsh", **asked)
    answered = run(
        folder,
        "shapelog",
        _SHAPELOG_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        **asked,
    )
    assert "preflight" in answered
    zsh, fish = (run(folder, "shapelog", "completion", shell) for shell in ("zsh", "fish"))
    assert zsh.startswith("#compdef shapelog")
    assert fish.startswith("complete --command shapelog")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_takes_its_script(folder: Path) -> None:
    script = run(folder, "shapelog", "completion", "zsh")
    run(folder, "zsh", "-f", "-c", f"autoload -U compinit; compinit -D; {script}\nwhence -w _shapelog_completion")


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_takes_its_script(folder: Path) -> None:
    script = run(folder, "shapelog", "completion", "fish")
    assert "preflight" in run(folder, "fish", "--no-config", "-c", f"{script}; complete -C 'shapelog pref'")
