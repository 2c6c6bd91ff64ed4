"""Fenced blocks of the documents: examples, to be run as they stand but for the server's address.

A test takes all blocks of a document, or one by its name, which stands before the fence:

<!-- example: NAME -->
```language
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.tree import ROOT

ADDRESS = "http://127.0.0.1:3000"
_BLOCK = re.compile(
    r"^(?:<!-- example: (?P<name>\S+) -->\n)?"
    r"(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    document: str
    name: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}, the block that begins with {self.first!r}"

    @property
    def first(self) -> str:
        """Its first line that says anything, without a comment behind it."""
        lines = (re.sub(r"  +#.*", "", line).strip() for line in self.text.splitlines())
        return next((line for line in lines if line), "")


def blocks_in(text: str, document: str = "") -> list[Block]:
    """All blocks of a text, in its order."""
    return [
        Block(document, found["name"] or "", found["language"].strip(), textwrap.dedent(found["text"]))
        for found in _BLOCK.finditer(text)
    ]


def blocks(document: str, *languages: str) -> list[Block]:
    """A document's blocks, in these languages if any are named."""
    found = blocks_in((ROOT / document).read_text("utf-8"), document)
    return [block for block in found if not languages or block.language in languages]


def examples(document: str) -> dict[str, str]:
    """Those of a document that have names."""
    named = [(block.name, block.text) for block in blocks(document) if block.name]
    assert len(dict(named)) == len(named), f"{document} has two examples of one name"
    return dict(named)


def written(document: str, name: str, folder: Path, url: str) -> Path:
    """One of them as a file, for a server at `url`."""
    text = examples(document)[name]
    assert text.count(ADDRESS) == 1, f"{name} does not ask {ADDRESS}: the test cannot lead it to a server of its own"
    path = folder / name
    path.write_text(text.replace(ADDRESS, url), "utf-8")
    return path
