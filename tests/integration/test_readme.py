"""The front page, then the runbook and the lake's page, done word for word on one shop: every command and script."""

import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.examples import blocks
from tests.newcomer import Newcomer, newcomer
from tests.postgres import Server
from tests.tree import ROOT

ON_A_STOPPED_SERVER = ("shapelog recover", "shapelog verify")
INSTALLED = ".venv/bin/pip install"
"""What the release's own tests do."""

SPARK = "from storage.lake.spark import open_session\nsession = spark = open_session()\n"
"""What whoever reads the lake's page with Spark has already."""


@pytest.mark.timeout(300)  # several programs, one after another, and Spark twice
def test_the_front_page_and_the_runbook_hold(own_server: Callable[[], Server], tmp_path: Path) -> None:
    with newcomer(own_server(), tmp_path) as someone:
        someone.environment["PYTHONPATH"] = os.fspath(ROOT)
        demo, *story = blocks("README.md", "sh", "python")
        assert demo.first.startswith("make demo"), "which has tests of its own"
        for block in story:
            if block.language == "sh":
                someone.types("".join(line for line in block.text.splitlines(True) if not line.startswith(INSTALLED)))
            else:
                assert "status: string" in someone.runs_python(block.text)
        runbook(someone, stopped=False)
        reading, streaming = (block.text for block in blocks("docs/lake.md", "python"))
        counted = "print(orders.spark(session).count())\n"
        assert someone.runs_python(f"{SPARK}{reading}\n{counted}{streaming}\nprint(orders.isStreaming)").split() == [
            "100",
            "True",
        ]
        someone.stops_all()
        runbook(someone, stopped=True)


def runbook(someone: Newcomer, *, stopped: bool) -> None:
    """Its commands; some are for a server that does not run."""
    found = [block.text for block in blocks("docs/runbook.md", "sh")]
    assert len(found) > 5, "is this still how the page is written?"
    chosen = [text for text in found if text.startswith(ON_A_STOPPED_SERVER) == stopped]
    assert chosen
    for text in chosen:
        if "HANDLE" in text:
            [*_, newest] = orjson.loads(someone.runs("shapelog shapes list --json"))["shapes"]
            text = text.replace("HANDLE", newest["handle"])  # noqa: PLW2901 - the page's word
        someone.types(text)
