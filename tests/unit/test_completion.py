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
    """As their scripts ask, also where these shells are not."""
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


TYPED = """
zmodload zsh/zpty
zpty typed zsh -f -i
zpty -w typed "PS1=; autoload -Uz compinit; compinit -D; source <(shapelog completion zsh); echo rea''dy"
zpty -r -m typed shown '*ready*'
zpty -w -n typed $'{keys}\t'
zpty -r -m typed shown '*{wanted}*'
print -r -- "$shown"
"""
"""A terminal in which somebody types and sees; each read waits for what is to be seen."""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here: apt install zsh")
@pytest.mark.parametrize(
    ("keys", "wanted"),
    [("shapelog pref", "preflight"), ("shapelog shapes rem", "remove"), ("shapelog serve --wal-b", "--wal-budget")],
)
def test_zsh_completes(folder: Path, keys: str, wanted: str) -> None:
    """The script in a real terminal, with keys and the tab key."""
    assert wanted in run(folder, "zsh", "-f", "-c", TYPED.format(keys=keys, wanted=wanted))


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here: apt install zsh")
def test_zsh_takes_its_script_before_its_completion_was_begun(folder: Path) -> None:
    script = run(folder, "shapelog", "completion", "zsh")
    answered = run(folder, "zsh", "-f", "-c", f"{script}\nwhence -w _shapelog_completion compdef")
    assert answered.count(": function") == 2


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here: apt install fish")
@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("shapelog pref", {"preflight"}),
        ("shapelog shapes rem", {"remove"}),
        ("shapelog serve --wal-b", {"--wal-budget"}),
        ("shapelog completion ", {"bash", "zsh", "fish"}),
        ("shapelog verify fol", {"folder/"}),
        ("shapelog nothing-begins-so", set()),
    ],
)
def test_fish_completes(folder: Path, keys: str, wanted: set[str]) -> None:
    """Commands, options and choices; and where a folder is wanted, folders."""
    script = run(folder, "shapelog", "completion", "fish")
    (folder / "folder").mkdir(exist_ok=True)
    answered = run(folder, "fish", "--no-config", "-c", f"cd {folder}; {script}; complete -C '{keys}'")
    assert {line.split("\t")[0] for line in answered.splitlines()} == wanted
