"""Every example in the documents is run by a test, or parsed, or is named here with the reason why it is not.

A block's language says which: `text` is a drawing or an answer, `console` is commands after `$` and their answers.
Whatever calls `shapelog` is given to the program's own parser, wherever it stands.
"""

import ast
import importlib
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pglast
import pytest
import typer

from cdc.config.file_text import read_settings
from tests.examples import Block, blocks_in
from tests.tree import ROOT, prose, sources

CALLING = {"sh", "console", ""}
"""Whatever calls the program there is parsed; a block without a language is as good as `text`, so have a look there."""

NOT_RUN = {"text", "", "console", "toml"}
"""Nothing to be run, or read by the program's own parsers in this module."""

RUN = {
    ("README.md", "sh"): "test_the_front_page_and_the_runbook_hold",
    ("README.md", "python"): "test_the_front_page_and_the_runbook_hold",
    ("docs/runbook.md", "sh"): "test_the_front_page_and_the_runbook_hold",
    ("docs/lake.md", "python"): "test_the_front_page_and_the_runbook_hold",
    ("docs/quickstart.md", "sh"): "test_the_page_of_the_first_ten_minutes_holds",
    ("docs/quickstart.md", "sql"): "test_the_page_of_the_first_ten_minutes_holds",
    ("docs/quickstart.md", "python"): "test_the_page_of_the_first_ten_minutes_holds",
    ("docs/http.md", "sql"): "test_a_row_appears",
    ("docs/http.md", "sh"): "test_no_example_is_left_out",
    ("docs/http.md", "ts"): "test_no_example_is_left_out",
    ("docs/http.md", "tsx"): "test_no_example_is_left_out",
    ("docs/http.md", "python"): "test_no_example_is_left_out",
    ("docs/testing.md", "python"): "test_the_page_about_tests_is_right",
    ("docs/doctor.md", "sql"): "test_the_rights_of_the_page_are_enough",
}
"""Which test takes all blocks of a document and a language, and runs them."""

EXCEPTIONS = {
    "make demo": "make: tests/integration/test_demo.py",
    "cp docker/.env.example docker/.env": "no container engine here",
    """curl -i -H "Authorization: Bearer $SHAPELOG_SECRET" 'http://127.0.0.1:8080/v1/shape?table=orders&offset=-1'""": (
        "as above"
    ),
    "pip install '.[testing]'": "tests/test_release.py installs the wheel, and test_extras_exist knows the name",
    "source <(shapelog completion bash)": "tests/unit/test_completion.py has each shell do it",
    "async with Session(settings, known=read_what_we_have) as session:": "an outline, with dots for what a caller does",
}
"""Blocks that none runs, by their first line, and why."""

_CALL = re.compile(
    r"""(?:^|\()(?:\.venv/bin/)?shapelog((?: (?:"[^"]*"|'[^']*'|[^\s"'#<>|;&)]+))+)""",
    re.MULTILINE,
)
"""Up to a comment, a redirection or another command."""

_HELP_CALL = re.compile(r"^ +shapelog (.+)$", re.MULTILINE)


@cache
def documents() -> dict[str, list[Block]]:
    return {
        str(source.path): blocks_in(source.text, str(source.path))
        for source in sources()
        if source.path.suffix == ".md"
    }


def every(*languages: str) -> Iterator[Block]:
    for blocks in documents().values():
        yield from (block for block in blocks if block.language in languages)


def test_every_block_has_a_test_or_a_reason() -> None:
    tests = {
        name
        for source in sources()
        if source.is_test and source.is_python
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", source.text, re.MULTILINE)
    }
    met: set[object] = set()
    for block in (block for blocks in documents().values() for block in blocks):
        place = (block.document, block.language)
        met |= {place, block.first}
        if block.language in NOT_RUN or only_calls(block):
            continue
        assert place in RUN or block.first in EXCEPTIONS, (
            f"{block}: nobody runs it, in the language {block.language!r}. Give it to a test and name that in RUN, or "
            f"mark it as `text`, or say in EXCEPTIONS why it cannot be run"
        )
    assert not set(RUN.values()) - tests, "no such test"
    gone = [one for one in [*RUN, *EXCEPTIONS] if one not in met]
    assert not gone, f"no block is meant by {gone}"


def only_calls(block: Block) -> bool:
    """Nothing but calls of the program, each of which is parsed."""
    lines = [line for line in block.text.splitlines() if line.strip()]
    return block.language == "sh" and all(line.startswith("shapelog ") and ">" not in line for line in lines)


def test_every_fence_is_seen() -> None:
    """Two fences make a block; what is indented is no block, so that nothing hides there."""
    for source in sources():
        if source.path.suffix == ".md":
            fences = re.findall(r"^ *```", source.text, re.MULTILINE)
            assert len(fences) == 2 * len(documents()[str(source.path)]), source
            assert not re.findall(r"^ {4,}\S.*", prose(source.text), re.MULTILINE), f"{source}: put it between fences"


def commands() -> dict[str, Any]:
    program: Any = typer.main.get_command(importlib.import_module("cdc.cli").app)
    found = dict(program.commands)
    for name, command in program.commands.items():
        below = getattr(command, "commands", {})
        found |= {f"{name} {inner}": one for inner, one in below.items()}
    return found


def parse(call: str) -> None:
    """As the program would, up to where it would begin; raises as it would."""
    words = shlex.split(call)
    if words[0] == "--config":
        del words[:2]
    known = commands()
    longest = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
    assert longest in known, f"there is no command {longest}"
    assert not hasattr(known[longest], "commands"), f"{longest} is no command, there are some below it"
    known[longest].make_context(longest, words[len(longest.split()) :])


def is_parsed(call: str) -> str:
    try:
        parse(call)
    except Exception as error:  # noqa: BLE001 - the library's own, which is vendored and has no public name
        return f"shapelog {call}: {getattr(error, 'message', error)}"
    return ""


def test_calls_in_blocks_are_taken() -> None:
    calls = [(block, call) for block in every(*CALLING) for call in _CALL.findall("\n".join(typed(block)))]
    assert len(calls) > 40, "is this still how documents write commands?"
    assert not [f"{block}: {wrong}" for block, call in calls if (wrong := is_parsed(call))]


def typed(block: Block) -> list[str]:
    """The lines that a person types."""
    lines = block.text.splitlines()
    return [line[2:] for line in lines if line.startswith("$ ")] if block.language == "console" else lines


def test_a_mistyped_call_is_seen() -> None:
    assert not is_parsed("shapes add orders --where 'id > 1'")
    for wrong in ("shapes ad orders", "serve --data-dri data", "serve --port many", "shapes add", "tail orders twice"):
        assert is_parsed(wrong), wrong


def test_calls_in_prose_name_what_there_is() -> None:
    """They may lack an argument; commands and options are as they are."""
    known = commands()
    for source in sources():
        if source.path.suffix == ".md" and source.path.name != "CHANGELOG.md":
            for call in re.findall(r"`(?:\.venv/bin/)?shapelog ([a-z][^`]*)`", prose(source.text)):
                words = call.split()
                name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
                assert name in known, f"{source}: there is no command {name}"
                options = {option for parameter in known[name].params for option in parameter.opts} | {"--help"}
                unknown = {word for word in words if word.startswith("-") and len(word) > 1} - options
                assert not unknown, f"{source}: shapelog {name} has no {unknown}"


@pytest.mark.parametrize("name", sorted(commands()))
def test_calls_in_help_are_taken(name: str) -> None:
    for call in _HELP_CALL.findall(commands()[name].help or ""):
        for one in _CALL.findall(f"shapelog {call}"):
            assert not is_parsed(one), f"{name} --help"


def test_every_shell_block_can_be_read() -> None:
    for block in every("sh"):
        found = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
        assert found.returncode == 0, f"{block}: {found.stderr}"


def test_every_settings_file_is_taken() -> None:
    found = list(every("toml"))
    assert found, "is this still how documents mark settings?"
    for block in found:
        assert read_settings(block.text, "shapelog.toml").values, str(block)


def test_statements_and_python_can_be_read() -> None:
    for block in every("sql"):
        assert pglast.parse_sql(block.text), str(block)
    for block in every("python"):
        compile(block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for source in sources():
        if source.path.suffix == ".md":
            named = set(re.findall(r"(?:shapelog|'\.)\[(\w+)\]", source.text))
            assert named <= set(extras), f"{source}: there is no extra {named - set(extras)}"
