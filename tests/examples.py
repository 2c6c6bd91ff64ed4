"""Examples out of the documents, to be run as they stand but for the server's address.

<!-- example: NAME -->
```language
"""

import re
from pathlib import Path

from tests.tree import ROOT

ADDRESS = "http://127.0.0.1:3000"
_EXAMPLE = re.compile(r"^<!-- example: (\S+) -->\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples(document: str) -> dict[str, str]:
    """All of a document, by name."""
    found = _EXAMPLE.findall((ROOT / document).read_text("utf-8"))
    assert len(dict(found)) == len(found), f"{document} has two examples of one name"
    return dict(found)


def written(document: str, name: str, folder: Path, url: str) -> Path:
    """One of them as a file, for a server at `url`."""
    text = examples(document)[name]
    assert text.count(ADDRESS) == 1, f"{name} does not ask {ADDRESS}: the test cannot lead it to a server of its own"
    path = folder / name
    path.write_text(text.replace(ADDRESS, url), "utf-8")
    return path
