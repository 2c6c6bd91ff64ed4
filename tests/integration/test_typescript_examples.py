"""Every example in TypeScript that a document shows has types that fit those of the packages it imports."""

from pathlib import Path

import pytest

from tests.examples import blocks
from tests.npm_package import npm_package, type_faults
from tests.tree import ROOT

LANGUAGES = ("ts", "tsx", "typescript")
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])


def programs(folder: Path) -> list[Path]:
    """All of them as files; each is a module of its own."""
    found = []
    for number, block in enumerate(block for document in DOCUMENTS for block in blocks(document, *LANGUAGES)):
        suffix = "tsx" if block.language == "tsx" else "ts"
        path = folder / f"{Path(block.document).stem}-{number}.{suffix}"
        path.write_text(block.text, "utf-8")
        found.append(path)
    return found


def test_examples_have_types_that_fit(tmp_path: Path) -> None:
    npm_package()
    found = programs(tmp_path)
    assert {path.name.partition("-")[0] for path in found} >= {"http"}, "is this still how documents mark examples?"
    assert type_faults(*found) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('table: "items"', "table: 7"),
        ("item.name", "item.nam"),
        ("import { Shape, ShapeStream }", "import { Shape, ShapeStraem as ShapeStream }"),
    ],
)
def test_an_example_that_does_not_fit_is_found(tmp_path: Path, right: str, wrong: str) -> None:
    npm_package()
    faults = []
    for path in programs(tmp_path):
        text = path.read_text("utf-8")
        if right in text:
            path.write_text(text.replace(right, wrong), "utf-8")
            faults += type_faults(path)
    assert faults, f"{wrong} fits as well"
