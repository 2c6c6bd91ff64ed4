"""House rules that no tool checks. A rule looks at one file and says where it is broken and what to do instead.

`test_a_rule_sees_its_fault` keeps the rules honest: each is shown a file that breaks it.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tree import Source, git_files, imports_of, prose, sources

MODULE_LINES_MAX = 400  # at 400 lines a module has a second subject
FUNCTION_LINES_MAX = 70  # one screen
TEST_FUNCTION_LINES_MAX = 100  # a scenario may take longer to tell

PRINTERS = ("cdc/cli.py", "cdc/commands/", "cdc/demo.py", "tests/bench/")
ENTRY_POINTS = {"cdc.cli", "cdc.testing.fixtures"}  # by name: [project.scripts], and pytest's `pytest_plugins`

Fault = tuple[int, str]
Rule = Callable[[Source], Iterator[Fault]]


def module_is_short(source: Source) -> Iterator[Fault]:
    lines_count = source.text.count("\n")
    if source.is_of_package and lines_count > MODULE_LINES_MAX:
        yield 1, f"{lines_count} lines, at most {MODULE_LINES_MAX}: move the second subject out"


def functions_are_short(source: Source) -> Iterator[Fault]:
    lines_max = TEST_FUNCTION_LINES_MAX if source.is_test else FUNCTION_LINES_MAX
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines_count = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines_count > lines_max:
                yield node.lineno, f"{node.name}() has {lines_count} lines, at most {lines_max}: move a step out"


def module_has_docstring(source: Source) -> Iterator[Fault]:
    if source.is_python and source.text and not ast.get_docstring(source.tree):
        yield 1, "no docstring: say in a sentence what the module is"


def waits_are_for_states(source: Source) -> Iterator[Fault]:
    for call, name in calls(source):
        yields_only = name == "asyncio.sleep" and is_literal(call.args[:1], 0)
        if source.is_test and name in {"time.sleep", "asyncio.sleep"} and not yields_only:
            yield call.lineno, f"{name} is banned in tests: wait for a state (an event, a condition)"


def only_commands_print(source: Source) -> Iterator[Fault]:
    for call, name in calls(source):
        if name == "print" and not source.path.as_posix().startswith(PRINTERS):
            yield call.lineno, f"print is banned here: return the text, or log it; {', '.join(PRINTERS)} print"


def assertions_can_fail(source: Source) -> Iterator[Fault]:
    for node in nodes(source):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and node.test.value:
            yield node.lineno, "this assertion cannot fail: assert what the test is about"


def skips_have_reasons(source: Source) -> Iterator[Fault]:
    reasoned = {id(call.func) for call, _ in calls(source) if call.args or call.keywords}
    for node in nodes(source):
        if not isinstance(node, ast.Attribute | ast.Name) or id(node) in reasoned:
            continue
        if dotted(source, node) in {"pytest.skip", "pytest.mark.skip"}:
            yield node.lineno, "a skip without a reason: say what is missing"


def suppressions_are_narrow(source: Source) -> Iterator[Fault]:
    for line, comment in comments(source):
        if re.match(r"#\s*type:\s*ignore", comment) and not re.match(r"# type: ignore\[[\w, -]+\]\s+# \S", comment):
            yield line, "write `# type: ignore[code]  # the reason`"
        if re.match(r"#\s*(ruff:\s*)?noqa\b", comment, re.IGNORECASE) and not re.search(r"noqa: [A-Z]+\d", comment):
            yield line, "write `# noqa: CODE`, naming the rule"


def document_has_one_title(source: Source) -> Iterator[Fault]:
    if source.path.suffix == ".md":
        titles_count = sum(line.startswith("# ") for line in prose(source.text).split("\n"))
        if titles_count != 1:
            yield 1, f"{titles_count} titles (`# ...`): a document has one"


def paths_are_relative(source: Source) -> Iterator[Fault]:
    for line, text in enumerate(source.text.split("\n"), 1):
        if found := re.search(r"(?<![\w/.])/(?:home|root|work|Users)/\w+", text):
            yield line, f"{found[0]} is a folder of one machine: use a path relative to the project"


RULES: list[Rule] = [
    module_is_short,
    functions_are_short,
    module_has_docstring,
    waits_are_for_states,
    only_commands_print,
    assertions_can_fail,
    skips_have_reasons,
    suppressions_are_narrow,
    document_has_one_title,
    paths_are_relative,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps(rule: Rule) -> None:
    faults = [f"{source.path}:{line}: {fault}" for source in sources() for line, fault in rule(source)]
    assert not faults, "\n" + "\n".join(faults)


def test_every_module_is_imported_by_another() -> None:
    used = {name for source in sources() if source.is_python for name in imports_of(source) - {source.module}}
    dead = [
        str(source.path)
        for source in sources()
        if source.is_of_package and source.path.stem not in {"__init__", "__main__"}
        if source.module not in used | ENTRY_POINTS
    ]
    assert not dead, "nothing imports these modules, and no test does: " + ", ".join(dead)


def test_tests_leave_no_files() -> None:
    left = [path for path in git_files("--others") if path.parts[0] == "tests" and path.suffix != ".py"]
    assert not left, f"write to tmp_path, or `git add` what is meant to stay: {left}"


BROKEN: list[tuple[Rule, str, str]] = [
    (module_is_short, "storage/a.py", "a = 1\n" * 401),
    (functions_are_short, "storage/a.py", "def f():\n" + "    a = 1\n" * 70),
    (functions_are_short, "tests/a.py", "def f():\n" + "    a = 1\n" * 100),
    (module_has_docstring, "storage/a.py", "a = 1\n"),
    (waits_are_for_states, "tests/a.py", "import time\ntime.sleep(0)\n"),
    (waits_are_for_states, "tests/a.py", "from time import sleep as rest\nrest(1)\n"),
    (waits_are_for_states, "tests/a.py", "import asyncio\nasyncio.sleep(0.1)\n"),
    (only_commands_print, "storage/a.py", "print(1)\n"),
    (assertions_can_fail, "tests/a.py", "assert True\n"),
    (skips_have_reasons, "tests/a.py", "import pytest\npytest.skip()\n"),
    (skips_have_reasons, "tests/a.py", "import pytest\n@pytest.mark.skip\ndef f(): ...\n"),
    (suppressions_are_narrow, "storage/a.py", "a = b  # type: ignore\n"),
    (suppressions_are_narrow, "storage/a.py", "a = b  # type: ignore[name-defined]\n"),
    (suppressions_are_narrow, "storage/a.py", "a = b  # noqa\n"),
    (document_has_one_title, "docs/a.md", "## Second level\n```\n# a comment\n```\n"),
    (document_has_one_title, "docs/a.md", "# One\n# Two\n"),
    (paths_are_relative, "docs/a.md", "see /" + "home/me/file\n"),
]

SOUND: list[tuple[Rule, str, str]] = [
    (functions_are_short, "tests/a.py", "def f():\n" + "    a = 1\n" * 99),
    (waits_are_for_states, "tests/a.py", "import asyncio\nasyncio.sleep(0)\n"),
    (only_commands_print, "cdc/cli.py", "print(1)\n"),
    (skips_have_reasons, "tests/a.py", "import pytest\npytest.skip('no server here')\n"),
    (skips_have_reasons, "tests/a.py", "import pytest\n@pytest.mark.skip(reason='no server')\ndef f(): ...\n"),
    (suppressions_are_narrow, "storage/a.py", "a = b  # type: ignore[name-defined]  # a builtin of the host\n"),
    (suppressions_are_narrow, "storage/a.py", "a = b  # noqa: F821\n"),
    (document_has_one_title, "docs/a.md", "# One\n```\n# a comment\n```\n"),
    (paths_are_relative, "docs/a.md", "see docs/" + "home/me\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN)
def test_a_rule_sees_its_fault(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(Path(path), text)))


@pytest.mark.parametrize(("rule", "path", "text"), SOUND)
def test_a_rule_leaves_sound_files_alone(rule: Rule, path: str, text: str) -> None:
    assert not list(rule(Source(Path(path), text)))


def nodes(source: Source) -> list[ast.AST]:
    return source.nodes if source.is_python else []


def calls(source: Source) -> Iterator[tuple[ast.Call, str]]:
    """Calls with the full name of what is called, whatever name it was imported under."""
    for node in nodes(source):
        if isinstance(node, ast.Call):
            yield node, dotted(source, node.func)


def dotted(source: Source, node: ast.AST) -> str:
    match node:
        case ast.Attribute():
            return f"{dotted(source, node.value)}.{node.attr}"
        case ast.Name():
            return source.imported_names.get(node.id, node.id)
        case _:
            return "?"


def is_literal(expressions: list[ast.expr], value: object) -> bool:
    return [node.value for node in expressions if isinstance(node, ast.Constant)] == [value]


def comments(source: Source) -> Iterator[tuple[int, str]]:
    if source.is_python:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
