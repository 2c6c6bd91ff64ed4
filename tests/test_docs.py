"""The documents keep up with the code: links lead somewhere, and names that users meet are explained.

Modules are read when a test runs, not at import, so that one missing module fails one test.
"""

import importlib
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from tests.tree import ROOT, Source, prose, sources

UNITS = {"KIB", "MIB", "GIB"}  # helpers of limits.py that are not limits themselves
EXPLAINED = ("storage.", "cdc.source.", "flush_tracker.")  # packages of which the architecture names every module


def limits(module: ModuleType) -> Iterator[str]:
    annotations = inspect.get_annotations(module)
    yield from (name for name, kind in annotations.items() if name.isupper() and "Final" in str(kind))


def error_codes(module: ModuleType) -> Iterator[str]:
    for error in error_classes(module):
        yield str(vars(error).get("code", f"{error.__name__} has no code"))


def metrics(module: ModuleType) -> Iterator[str]:
    """Texts of the module's enumerations and of its constants in capitals."""
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Enum) and value.__module__ == module.__name__:
            yield from (str(member.value) for member in value)
        elif name.isupper() and isinstance(value, str):
            yield value


def lake_metrics(module: ModuleType) -> Iterator[str]:
    """Those of the one enumeration; triggers are values of a label."""
    yield from (str(member.value) for member in module.LakeMetric)


# Names that a user may meet: where they are defined, how to list them, and the document that explains each. Storage's
# come first in a document; those of the other packages are in sections of these titles behind them.
SECTIONS = {
    "storage": "",
    "storage.lake": "The lake",
    "cdc.source": "The Postgres end",
    "shapes": "Shapes",
    "shapes.http": "The shape protocol",
} | dict.fromkeys(("cdc", "cdc.telemetry"), "The program")
VOCABULARIES = [
    pytest.param("storage.limits", limits, "docs/limits.md", id="limits"),
    pytest.param("storage.errors", error_codes, "docs/errors.md", id="errors"),
    pytest.param("storage.metrics", metrics, "docs/metrics.md", id="metrics"),
    pytest.param("storage.lake.limits", limits, "docs/limits.md", id="lake limits"),
    pytest.param("storage.lake.errors", error_codes, "docs/errors.md", id="lake errors"),
    pytest.param("storage.lake.metrics", lake_metrics, "docs/metrics.md", id="lake metrics"),
    pytest.param("cdc.source.limits", limits, "docs/limits.md", id="source limits"),
    pytest.param("cdc.source.errors", error_codes, "docs/errors.md", id="source errors"),
    pytest.param("shapes.limits", limits, "docs/limits.md", id="shapes limits"),
    pytest.param("shapes.errors", error_codes, "docs/errors.md", id="shapes errors"),
    pytest.param("shapes.http.limits", limits, "docs/limits.md", id="protocol limits"),
    pytest.param("shapes.http.errors", error_codes, "docs/errors.md", id="protocol errors"),
    pytest.param("shapes.http.metrics", metrics, "docs/metrics.md", id="protocol metrics"),
    pytest.param("cdc.limits", limits, "docs/limits.md", id="program limits"),
    pytest.param("cdc.errors", error_codes, "docs/errors.md", id="program errors"),
    pytest.param("cdc.telemetry.metrics", metrics, "docs/metrics.md", id="program metrics"),
]
ERRORS = [
    "storage.errors",
    "storage.lake.errors",
    "cdc.source.errors",
    "shapes.errors",
    "shapes.http.errors",
    "cdc.errors",
]


@pytest.mark.parametrize(("module_name", "names_of", "document"), VOCABULARIES)
def test_every_name_is_explained(
    module_name: str, names_of: Callable[[ModuleType], Iterator[str]], document: str
) -> None:
    names = set(names_of(importlib.import_module(module_name))) - UNITS
    assert names, f"{module_name} defines none: is the way to list them still right?"
    text = section_of((ROOT / document).read_text("utf-8"), module_name.rpartition(".")[0])

    missing = sorted(name for name in names if f"`{name}`" not in text)
    assert not missing, f"{document} explains none of these, in backticks: {missing}"

    listed = re.findall(r"^\| *`([^`]+)` *\|", text, re.MULTILINE)  # the first column of its tables
    gone = sorted(set(listed) - names)
    assert not gone, f"{document} explains what {module_name} no longer has: {gone}"


def section_of(text: str, package: str) -> str:
    """The part of a document that is about a package."""
    starts = {name: text.find(f"\n## {title}\n") if title else 0 for name, title in SECTIONS.items()}
    start = starts[package]
    assert start >= 0, f"there is no section {SECTIONS[package]!r}"
    return text[start : min((each for each in starts.values() if each > start), default=None)]


def test_every_error_has_its_own_code_and_a_hint() -> None:
    errors = [error for name in ERRORS for error in error_classes(importlib.import_module(name))]
    codes = [code for name in ERRORS for code in error_codes(importlib.import_module(name))]
    assert len(set(codes)) == len(codes), "two conditions share a code: nobody could tell them apart"
    assert [error.__name__ for error in errors if not getattr(error, "hint", "")] == []


@pytest.mark.parametrize("document", [source for source in sources() if source.path.suffix == ".md"], ids=str)
def test_links_lead_somewhere(document: Source) -> None:
    broken = [target for target in local_links(document.text) if not resolves(document.path, target)]
    assert not broken, f"{document.path}: {broken}"


def test_commands_and_options_are_explained() -> None:
    text = (ROOT / "docs/commands.md").read_text("utf-8")
    sections = dict(re.findall(r"^## shapelog ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    cells = re.compile(r"^\| `([^`]+)`", re.MULTILINE)  # the first column of each section's table
    explained = {command: set(cells.findall(section)) for command, section in sections.items()}
    assert explained == {name: parameters for name, parameters in commands_and_parameters().items() if name}
    assert "`shapelog --version`" in text
    assert "`shapelog --config FILE COMMAND`" in text
    assert commands_and_parameters()[""] == {"--version", "--config"}


def test_settings_are_explained() -> None:
    """One table, in the order and with the defaults of the program's own."""
    text = (ROOT / "docs/settings.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|([^|]+)\|([^|]*)\|", text, re.MULTILINE)
    settings = importlib.import_module("cdc.config.settings").SETTINGS
    assert [name for name, _, _ in rows] == list(settings)
    for name, _, default in rows:
        value = settings[name].default
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        fits = {"", settings[name].absent} if value in {None, ""} else {shown.lower() if value is False else shown}
        assert default.strip().strip("`") in fits, name


def commands_and_parameters() -> dict[str, set[str]]:
    """What each command takes, as users write it; the program's own options under the empty name."""
    program: Any = typer.main.get_command(importlib.import_module("cdc.cli").app)
    found = {"": program}
    for name, command in program.commands.items():
        below = getattr(command, "commands", None)
        found |= {name: command} if below is None else {f"{name} {inner}": one for inner, one in below.items()}
    return {name: set(filter(None, map(parameter_name, command.params))) for name, command in found.items()}


def parameter_name(parameter: Any) -> str | None:
    name: str = parameter.metavar if parameter.param_type_name == "argument" else max(parameter.opts, key=len)
    return None if name == "--help" else name


def test_commands_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        (str(source.path), target)
        for source in sources()
        if source.path.suffix == ".md"
        for target in re.findall(r"(?:^|`)make ([a-z]+)", source.text, re.MULTILINE)
    }
    assert not {name for name in named if name[1] not in targets}


def test_tests_that_documents_name_exist_once() -> None:
    found = Counter(
        name
        for source in sources()
        if source.is_test and source.is_python
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", source.text, re.MULTILINE)
    )
    named = {
        (str(source.path), name)
        for source in sources()
        if source.path.suffix == ".md"
        for name in re.findall(r"`(test_\w+)`", source.text)
    }
    assert len(named) > 100, "is this still how documents name tests?"
    assert sorted((document, name) for document, name in named if found[name] != 1) == []


def test_every_behaviour_of_the_loop_has_a_row() -> None:
    text = (ROOT / "docs/loop.md").read_text("utf-8")
    listed = set(re.findall(r"\b(?:SLC|A|B|C)\d+\b", " ".join(re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE))))
    counts = {"A": 12, "B": 10, "C": 18, "SLC": 12}
    wanted = {f"{kind}{number}" for kind, count in counts.items() for number in range(1, count + 1)}
    assert sorted(wanted - listed) == []


def test_modules_of_the_architecture_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    named = set(modules_in_tree(text))
    assert named, "docs/architecture.md shows no tree of modules, in a fenced block"
    assert sorted(path for path in named if not (ROOT / path).is_file()) == []
    explained = {
        str(source.path)
        for source in sources()
        if source.is_of_package and source.module.startswith(EXPLAINED) and source.path.stem != "__init__"
    }
    assert sorted(explained - named) == [], "docs/architecture.md says nothing of these modules"


def test_a_tree_is_read_as_it_is_drawn() -> None:
    drawn = """
not/fenced.py
```
storage/          logs; see other.py
  offset.py       where a change stands
  lake/           types.py commit.py
  ├── source.py   Spark's view
  limits.py
cdc/ cli.py
```
"""
    assert list(modules_in_tree(drawn)) == [
        "storage/offset.py",
        "storage/lake/types.py",
        "storage/lake/commit.py",
        "storage/lake/source.py",
        "storage/limits.py",
        "cdc/cli.py",
    ]


def modules_in_tree(text: str) -> Iterator[str]:
    """Paths in a document's fenced trees.

    A line begins with a folder (`storage/`) or a module (`offset.py`); indentation says in which folder; more modules
    may follow on the line, and then words, which end the list.
    """
    folders: list[tuple[int, str]] = []
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.split("\n"):
            entry = re.sub(r"[│├└─]", " ", line)
            words = entry.split()
            indent = len(entry) - len(entry.lstrip())
            while folders and folders[-1][0] >= indent:
                folders.pop()
            if words and words[0].endswith("/"):
                folders.append((indent, words.pop(0)))
            for word in words:
                if not re.fullmatch(r"[\w/]+\.py", word):
                    break
                yield "".join(folder for _, folder in folders) + word


def local_links(text: str) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if not re.match(r"[a-z]+:", target):
            yield target


def resolves(document: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = ROOT / document.parent / path if path else ROOT / document
    return file.exists() and (not anchor or anchor in anchors(file.read_text("utf-8")))


def anchors(text: str) -> set[str]:
    """Headings as links name them: small letters, hyphens for spaces, nothing else but word characters."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def error_classes(module: ModuleType) -> list[type]:
    """Those that name a condition: all but the root, which is the first one."""
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Exception)]
    root = next(kind for kind in classes if kind.__module__ == module.__name__)
    return [kind for kind in classes if issubclass(kind, root) and kind is not root]
