"""nginx with our own configuration, `docker/nginx.conf`, in front of a server.

Debian's: `apt install nginx-light`. Where there is none its tests are skipped, with `CI=true` they fail; the first
lines of a test run say so.
"""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tree import ROOT
from tests.waiting import until

CONFIGURATION = ROOT / "docker" / "nginx.conf"
MISSING = "there is no nginx here: apt install nginx-light"
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def find_nginx() -> str | None:
    """Where its program is: Debian puts it where only root looks."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def pytest_report_header() -> str | None:
    fate = "failed" if os.environ.get("CI") == "true" else "skipped"
    return None if find_nginx() else f"nginx: !!! MISSING: its tests are {fate}: apt install nginx-light !!!"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def configured(folder: Path, port: int, origin_port: int) -> str:
    """What users get, but for the places: these are replaced, and must be there."""
    text = CONFIGURATION.read_text("utf-8")
    temporary = "".join(f"\n    {name}_temp_path {folder}/{name};" for name in TEMPORARY)
    for old, new in {
        "pid /tmp/nginx.pid;": f"pid {folder}/nginx.pid;",
        "/tmp/nginx-shapes ": f"{folder}/shapes ",  # noqa: S108 - replaced
        "server shapelog:3000;": f"server 127.0.0.1:{origin_port};",
        "listen 8080;": f"listen 127.0.0.1:{port};",
        "\nhttp {": f"\nhttp {{{temporary}",
    }.items():
        assert text.count(old) == 1, f"{CONFIGURATION} has not one {old!r} any more: what is it called now?"
        text = text.replace(old, new)
    if os.geteuid() == 0:  # its workers would be somebody who may not look into the test's folder
        text = f"user {pwd.getpwuid(0).pw_name};\n{text}"
    return text


@contextmanager
def nginx_before(origin_port: int, folder: Path) -> Iterator[str]:
    """Its address, as long as it runs."""
    program = find_nginx()
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    folder.mkdir(parents=True, exist_ok=True)
    port, configuration = free_port(), folder / "nginx.conf"
    configuration.write_text(configured(folder, port, origin_port), "utf-8")
    said = folder / "said"
    with said.open("wb") as output:
        command = [program, "-e", "stderr", "-p", str(folder), "-c", str(configuration), "-g", "daemon off;"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        until(lambda: process.poll() is not None or answers(port), "nginx to listen")
        assert process.poll() is None, said.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
