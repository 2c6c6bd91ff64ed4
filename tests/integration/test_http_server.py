"""The HTTP server as a process: by which names it is asked, clients that leave, and a stop beside thousands of them."""

import resource
import socket
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.bench._crowd import Crowd
from tests.postgres import Database
from tests.served import Served, serving
from tests.waiting import until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
FILL = "INSERT INTO items SELECT g, 'v' || g FROM generate_series(1, 20) g"
ROUTES = ["/", "/v1/health", "/metrics", "/console", "/v1/admin/status", "/v1/shape?table=items&offset=-1", "/nowhere"]
EVIL = {"host": "evil.example:3000"}

HELD_MAX = 10_000
STOP_SECONDS_MAX = 4.0  # two, on a machine that does nothing else


def follow(served: Served) -> tuple[str, str]:
    """Ask for a shape up to its end: handle and offset."""
    offset, handle = "-1", ""
    while True:
        answer = served.get(f"/v1/shape?table=items&offset={offset}&handle={handle}")
        assert answer.status_code == 200, answer.text
        offset, handle = answer.headers["electric-offset"], answer.headers["electric-handle"]
        if "electric-up-to-date" in answer.headers:
            return handle, offset


def number(served: Served, name: str) -> int:
    """One of the server's own."""
    lines = served.get("/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name} ")]
    return int(float(line.split()[1]))


def held(served: Served) -> int:
    """Requests that are held, as the server counts them."""
    return number(served, "shapelog_http_held_requests")


def test_a_page_of_another_name_reads_nothing(newest_database: Database, tmp_path: Path) -> None:
    with serving(newest_database, tmp_path / "data", "--allowed-host", "shapes.example") as served:
        for path in ROUTES:
            refused = httpx.get(served.url + path, headers=EVIL)
            assert (refused.status_code, "--allowed-host" in refused.text) == (403, True), path
            assert httpx.get(served.url + path, headers={"host": "shapes.example"}).status_code != 403, path
            assert served.get(path).status_code != 403, path
        assert httpx.post(f"{served.url}/v1/admin/shapes", headers=EVIL, json={"table": "x"}).status_code == 403
        assert served.stop() == 0


def test_who_brings_the_secret_may_use_any_name(newest_database: Database, tmp_path: Path) -> None:
    with serving(newest_database, tmp_path / "data", "--secret", "s") as served:
        assert httpx.get(f"{served.url}/v1/admin/status?secret=s", headers=EVIL).status_code == 200
        assert served.stop() == 0


def test_connections_are_counted(newest_database: Database, tmp_path: Path) -> None:
    with serving(newest_database, tmp_path / "data") as served:
        address = urlsplit(served.url)
        accepted = number(served, "shapelog_http_connections_accepted_total")
        for request in (b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"nonsense\r\n\r\n"):
            with socket.create_connection((address.hostname, address.port)) as client:
                client.sendall(request)
                while client.recv(1_000):
                    pass
        assert number(served, "shapelog_http_connections_accepted_total") > accepted + 2  # and this one
        assert number(served, 'shapelog_http_connections_cut_total{reason="no_request"}') == 1
        assert number(served, 'shapelog_http_connections_cut_total{reason="takes_little"}') == 0
        assert number(served, 'shapelog_http_connections_turned_away_total{reason="full"}') == 0
        until(lambda: number(served, "shapelog_http_connections") == 1, "all others to end")
        assert served.stop() == 0


def test_a_client_that_left_a_held_request_is_no_fault_at_the_stop(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS)
    with serving(newest_database, tmp_path / "data") as served:
        served.active()
        served.add("items")
        address = urlsplit(served.url)
        for path in ("/v1/admin/shapes/items/rows?wait=20&after=0_inf",) * 3:
            with socket.create_connection((address.hostname, address.port)) as client:
                client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        with socket.create_connection((address.hostname, address.port)) as client:
            head = "POST /v1/admin/shapes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            client.sendall(f"{head}content-length: 100\r\n\r\n{{".encode())
        assert served.get("/v1/health").status_code == 200
        began = time.monotonic()
        assert served.stop() == 0
        assert time.monotonic() - began < STOP_SECONDS_MAX
        assert not served.told("Traceback"), served.lines


@pytest.mark.parametrize(("held_max", "share_cut_max"), [(1_000, 0.0), (HELD_MAX, 0.5)])
def test_a_stop_beside_thousands_who_are_held(
    newest_database: Database, tmp_path: Path, held_max: int, share_cut_max: float
) -> None:
    """As many as may be held, or as this process may have connections; each gets a whole answer or none."""
    count = min(held_max, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)
    newest_database.execute(ITEMS, FILL)
    with serving(newest_database, tmp_path / "data", "--long-poll-timeout", "40") as served:
        served.active()
        handle, offset = follow(served)
        address = urlsplit(served.url)
        assert address.port is not None
        with closing(Crowd(address.port, count)) as crowd:
            target = f"/v1/shape?table=items&offset={offset}&handle={handle}&live=true"
            crowd.ask(f"GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            until(lambda: held(served) == count, f"{count} to be held")
            began = time.monotonic()
            assert served.stop() == 0
            seconds = time.monotonic() - began
            assert seconds < STOP_SECONDS_MAX, f"{count} held requests take {seconds:.1f} s to stop"
            cut = crowd.take(
                lambda _, head: b"electric-up-to-date" in head and b"connection: close" in head, may_close=True
            )
            assert cut <= count * share_cut_max, "a stop answers whom it can in a second"
        assert not served.told("Traceback"), served.lines


def test_what_is_stored_is_served_while_postgres_is_away(own_database: Database, tmp_path: Path) -> None:
    own_database.execute(ITEMS, FILL)
    with serving(own_database, tmp_path / "data") as served:
        served.active()
        handle, offset = follow(served)
        own_database.server.stop("immediate")
        until(lambda: served.get("/v1/health").status_code == 202, "it to notice")
        health = served.get("/v1/health")
        assert health.json() == {"status": "waiting"}
        assert health.headers["cache-control"] == "no-cache, no-store, must-revalidate"
        assert follow(served) == (handle, offset)
        unknown = served.get("/v1/shape?table=others&offset=-1")
        assert (unknown.status_code, unknown.headers["retry-after"]) == (503, "1")
        subset = served.get("/v1/shape?table=items&offset=now&subset__where=id%3D1")
        assert (subset.status_code, subset.json()["code"]) == (503, "database_unreachable")
        own_database.server.start()
        served.active()
        own_database.execute("INSERT INTO items VALUES (100, 'after')")
        target = f"/v1/shape?table=items&offset={offset}&handle={handle}&live=true"
        assert [one["value"]["id"] for one in served.get(target).json() if "value" in one] == ["100"]
        assert served.stop() == 0
