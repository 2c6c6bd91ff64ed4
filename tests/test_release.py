"""What is released: that it has every file, installs where nothing is, and runs there."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.tree import PACKAGES, ROOT, git_files

SECONDS = 400
"""For an install from nothing: a hundred megabytes, on a slow line and a busy machine."""

NEEDS_MORE = ("storage.lake", "cdc.demo", "cdc.testing.fixtures")
"""Modules that want an extra, or the developers' tools; all others must load with what an install brings."""

LOADS_EVERYTHING = f"""
import importlib, pathlib, sys
import cdc
root = pathlib.Path(cdc.__file__).parent.parent
for name in {PACKAGES!r}:
    for path in sorted((root / name).rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        if not module.startswith({NEEDS_MORE!r}) and not module.endswith("__main__"):
            importlib.import_module(module)
print(root)
"""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    found = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert found.returncode == 0, f"{' '.join(map(str, command))}\n{found.stdout}\n{found.stderr}"
    return found.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, made of what git has."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for path in git_files():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes((ROOT / path).read_bytes())
    run(sys.executable, "-m", "hatchling", "build", "-d", out, cwd=source)
    return out


def only(folder: Path, pattern: str) -> Path:
    [found] = folder.glob(pattern)
    return found


def files_of_packages() -> set[str]:
    return {path.as_posix() for path in git_files() if path.parts[0] in PACKAGES}


def test_the_wheel_has_the_packages_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        names = set(wheel.namelist())
    facts = {name for name in names if ".dist-info/" in name}
    assert names - facts == files_of_packages()
    assert {Path(name).name for name in facts} >= {"METADATA", "entry_points.txt", "LICENSE", "NOTICE"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_the_sources_have_all_that_the_wheel_is_made_of(built: Path) -> None:
    with tarfile.open(only(built, "*.tar.gz")) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert files_of_packages() <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "docker/Dockerfile"} <= names


@pytest.mark.timeout(2 * SECONDS)
def test_the_wheel_runs_where_nothing_else_is(built: Path, tmp_path: Path) -> None:
    home = tmp_path / "an empty place"
    venv.create(home, with_pip=True, clear=True)
    # Nobody runs most of what comes with it, so it is not compiled.
    run(home / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile", only(built, "*.whl"), cwd=tmp_path)
    assert run(home / "bin/shapelog", "--version", cwd=tmp_path).startswith("shapelog ")
    assert "materialize" in run(home / "bin/shapelog", "--help", cwd=tmp_path)
    where = run(home / "bin/python", "-I", "-c", LOADS_EVERYTHING, cwd=tmp_path).strip()
    assert Path(where).is_relative_to(home)
