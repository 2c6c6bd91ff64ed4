"""The page of the first ten minutes, done as a newcomer does it: every statement and command of it, in its order."""

import re
from collections.abc import Callable
from pathlib import Path

import pglast
import pytest

from tests.examples import blocks_in
from tests.newcomer import newcomer
from tests.postgres import Server
from tests.tree import ROOT

PAGE = ROOT / "docs/quickstart.md"
PARTS = re.compile(r"^## (\d)\. .*?$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(300)  # as of the front page
def test_the_page_of_the_first_ten_minutes_holds(own_server: Callable[[], Server], tmp_path: Path) -> None:
    parts = {int(number): blocks_in(text) for number, text in PARTS.findall(PAGE.read_text("utf-8"))}
    assert [*parts] == list(range(8))
    with newcomer(own_server(), tmp_path) as someone:
        someone.database_url = someone.shop.conninfo(user="shapelog", password="choose-one")  # noqa: S106 - the page's
        assert "//shapelog:choose-one@localhost/shop" in PAGE.read_text("utf-8")
        for number, blocks in parts.items():
            for block in blocks if number else []:  # the release's own tests install it
                match block.language:
                    case "sql":
                        for statement in pglast.split(block.text):
                            someone.shop.execute(statement)
                    case "sh":
                        someone.types(block.text)
                    case _:
                        someone.runs_python(block.text)
        assert "open" in someone.runs("shapelog shapes list")
        someone.stops_all()
    slots = someone.shop.slots()
    assert [*slots] == ["shapelog"], "what was temporary is gone"
    assert not slots["shapelog"]["active"]
