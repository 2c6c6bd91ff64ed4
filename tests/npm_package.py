"""What is written in JavaScript and runs beside our tests: the npm clients as they are published, in a process.

They are installed once, into `build/npm`; where there is no Node or no registry, the tests are skipped, in continuous
integration they fail.
"""

import asyncio
import fcntl
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.tree import ROOT

SOURCES = ROOT / "tests" / "npm"
INSTALLED = ROOT / "build" / "npm"
INSTALL_SECONDS = 90
MISSING = "there is no Node, or no registry of packages: apt install nodejs npm"
LINE_BYTES_MAX = 2**24


def npm_package() -> Path:
    """The folder with our programs and their packages."""
    if not is_installed():
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return INSTALLED


@cache
def is_installed() -> bool:
    """Install what is not there yet; one process at a time."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not (node and npm):
        return False
    INSTALLED.mkdir(parents=True, exist_ok=True)
    wanted, stamp = (SOURCES / "package.json").read_bytes(), INSTALLED / "installed.json"
    with (INSTALLED / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for source in SOURCES.iterdir():
            text, target = source.read_bytes(), INSTALLED / source.name
            if not target.exists() or target.read_bytes() != text:  # another process may be reading it
                target.write_bytes(text)
        if stamp.exists() and stamp.read_bytes() == wanted:
            return True
        command = [npm, "install", "--no-audit", "--no-fund", "--prefer-offline"]
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, cwd=INSTALLED, capture_output=True, timeout=INSTALL_SECONDS, check=False)
            if done.returncode == 0:
                stamp.write_bytes(wanted)
                return True
    return False


def bundled(entry: Path, output: Path, *options: str) -> Path:
    """One file out of a program in TypeScript or JSX and all that it imports; its packages are found in INSTALLED."""
    command = [str(INSTALLED / "node_modules/.bin/esbuild"), str(entry), "--bundle", *options]
    done = subprocess.run(
        [*command, f"--outfile={output}", "--jsx=automatic", "--log-level=warning"],
        cwd=INSTALLED,
        env=os.environ | {"NODE_PATH": str(INSTALLED / "node_modules")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return output


def type_faults(*programs: Path) -> list[str]:
    """What the compiler of TypeScript says against programs, at its strictest, with the types of INSTALLED."""
    options = ["--noEmit", "--strict", "--jsx", "react-jsx", "--target", "es2022", "--lib", "es2022,dom"]
    options += ["--module", "esnext", "--moduleResolution", "bundler", "--skipLibCheck"]
    for folder in {program.parent for program in programs}:
        if not (folder / "node_modules").exists():
            (folder / "node_modules").symlink_to(INSTALLED / "node_modules")
    command = [str(INSTALLED / "node_modules/.bin/tsc"), *options, *map(str, programs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    faults = [line for line in done.stdout.splitlines() if line.strip()]
    assert bool(faults) == bool(done.returncode), done.stdout + done.stderr
    return faults


@dataclass
class NpmClient:
    """A process, and what it has told."""

    process: asyncio.subprocess.Process
    rows: list[dict[str, Any]] | None = None
    errors: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)
    """All else."""

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            told = orjson.loads(line)
            self.rows = told.get("rows", self.rows)
            self.messages += told.get("messages", [])
            self.errors += [told["error"]] if "error" in told else []
            if not told.keys() & {"rows", "messages", "error"}:
                self.told.append(told)

    def tell(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(orjson.dumps(command) + b"\n")

    def table(self, *names: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.get(name) for name in names) for row in self.rows or ())

    def places(self) -> list[tuple[str, int]]:
        """Of all changes that came."""
        headers = [message["headers"] for message in self.messages]
        return [(one["lsn"], one["op_position"]) for one in headers if "lsn" in one]


@asynccontextmanager
async def npm_client(program: str, **options: Any) -> AsyncIterator[NpmClient]:
    """One of our programs, with options for its shape; no error may have come when it ends."""
    folder = npm_package()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *("node", program, orjson.dumps(options).decode()), cwd=folder, stdin=pipe, stdout=pipe, limit=LINE_BYTES_MAX
    )
    client = NpmClient(process)
    listening = asyncio.create_task(client.listen())
    try:
        yield client
        assert client.errors == []
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening
