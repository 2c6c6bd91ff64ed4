"""The project's files, for the tests that read the project itself: each is read once and parsed once."""

import ast
import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("cdc", "flush_tracker", "shapes", "storage")


@dataclass(frozen=True)
class Source:
    """A text file and its path, relative to the project's root."""

    path: Path
    text: str

    def __str__(self) -> str:
        return str(self.path)

    @property
    def is_python(self) -> bool:
        return self.path.suffix == ".py"

    @property
    def is_test(self) -> bool:
        return self.path.parts[0] == "tests"

    @property
    def is_of_package(self) -> bool:
        return self.is_python and self.path.parts[0] in PACKAGES

    @property
    def module(self) -> str:
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @functools.cached_property
    def imported_names(self) -> dict[str, str]:
        """Names in this module that stand for something imported, with its full name."""
        names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom):
                names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        return names


@functools.cache
def sources() -> list[Source]:
    """Every text file that git tracks or would track."""
    found = []
    for path in git_files("--cached", "--others"):
        try:
            found.append(Source(path, (ROOT / path).read_text("utf-8")))
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # bytes kept as an example; a file deleted but not yet in a commit; a link to a folder
    return found


def git_files(*which: str) -> list[Path]:
    # safe.directory: the one who runs the tests may be another user than the one who cloned.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--exclude-standard", *which]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({Path(name) for name in listing.split("\0") if name})


def imports_of(source: Source) -> set[str]:
    """Full names of all that a module imports; for `from a import b` both `a` and `a.b`, as either may be a module."""
    names: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = source.path.parts[: -node.level] if node.level else ()
            origin = ".".join([*package, *([node.module] if node.module else [])])
            names |= {origin} | {f"{origin}.{alias.name}" for alias in node.names}
    return names


def prose(text: str) -> str:
    """Markdown without its fenced blocks; their lines stay, empty, so that line numbers hold."""
    lines, fenced = [], False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith("```")
        lines.append("" if fenced or is_fence else line)
        fenced ^= is_fence
    return "\n".join(lines)
