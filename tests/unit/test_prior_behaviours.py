"""The tests that docs/prior-behaviours.md names are there, each once."""

import re
from collections import Counter

from tests.tree import ROOT, sources


def test_every_named_test_is_there() -> None:
    text = (ROOT / "docs/prior-behaviours.md").read_text("utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    found = Counter(
        name
        for source in sources()
        if source.is_test and source.is_python
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", source.text, re.MULTILINE)
    )
    assert len(named) > 50
    assert sorted(name for name in named if found[name] != 1) == []


def test_every_invariant_has_a_row() -> None:
    text = (ROOT / "docs/prior-behaviours.md").read_text("utf-8")
    rows = re.findall(r"^\| R(\d+) \|.*\| `test_\w+`(?:, `test_\w+`)* \|$", text, re.MULTILINE)
    assert [int(row) for row in rows] == [*range(1, 13), *range(20, 26)]
