"""The console's page as it is served: every file of it, nothing else, and nothing from anywhere else."""

import re
import shutil
import subprocess

import httpx
import pytest
from starlette.responses import PlainTextResponse

from cdc.http.console.page import CONSOLE_PATH, POLICY, ConsolePage, page_files

FILES = page_files()
MODULES = sorted(path for path in FILES if path.endswith(".js"))


async def ask(path: str, method: str = "GET", **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(ConsolePage(PlainTextResponse("behind", 418)))
    async with httpx.AsyncClient(transport=transport, base_url="http://console") as client:
        return await client.request(method, path, headers=headers)


@pytest.mark.parametrize("path", FILES)
async def test_each_file_is_there_with_the_policy_and_confirmed_by_its_tag(path: str) -> None:
    answer = await ask(path)
    assert answer.status_code == 200
    assert answer.content == FILES[path].body
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = await ask(path, **{"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1/admin/status",
        f"{CONSOLE_PATH}/nothing.js",
        f"{CONSOLE_PATH}/../page.py",
        f"{CONSOLE_PATH}/%2e%2e/page.py",
        f"{CONSOLE_PATH}/static/main.js",
        f"{CONSOLE_PATH}x",
    ],
)
async def test_all_else_is_passed_on(path: str) -> None:
    assert (await ask(path)).status_code == 418


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_the_page_is_only_read(method: str) -> None:
    assert (await ask(CONSOLE_PATH, method)).status_code == 418


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    page = FILES[CONSOLE_PATH].body.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
    for path, file in FILES.items():
        hosts = set(re.findall(r"https?://[\w.]+", file.body.decode()))
        assert hosts <= {"http://www.w3.org"}, path  # the name of SVG, which nobody fetches
    linked = set(re.findall(r'(?:src|href)="(/[^"]+)"', page))
    assert linked <= set(FILES), linked - set(FILES)


def test_every_module_is_imported_by_another_and_imports_what_is_there() -> None:
    imported = {CONSOLE_PATH + "/main.js"}
    for path in MODULES:
        for name in re.findall(r'from "\./([\w.]+)"', FILES[path].body.decode()):
            imported.add(f"{CONSOLE_PATH}/{name}")
    assert imported == set(MODULES)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here, which reads modules for faults")
def test_modules_are_javascript() -> None:
    for path in MODULES:
        checked = subprocess.run(
            ["node", "--input-type=module", "--check"], input=FILES[path].body, capture_output=True, check=False
        )
        assert checked.returncode == 0, (path, checked.stderr.decode())
