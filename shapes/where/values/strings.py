"""Text: padded, cut, matched by LIKE, and put in order by its bytes."""

import re
from functools import lru_cache
from typing import Final

from shapes.where.values.value import Invalid

NAME_BYTES_MAX: Final = 63
"""Of the type `name`, as Postgres is usually built."""
_PATTERNS_KEPT: Final = 1024


def strip_padding(text: str) -> str:
    """Without the blanks at the end, which do not count in `character(n)`."""
    return text.rstrip(" ")


def to_length(text: str, typmod: int, *, pad: bool, explicit: bool) -> str:
    """As `varchar(n)` or, padded, `character(n)` keeps it."""
    if typmod < 0:
        return text
    length = typmod - 4
    if len(text) > length:
        if not explicit and text[length:].strip(" "):
            kind = "character" if pad else "character varying"
            raise Invalid(f"value too long for type {kind}({length})")
        text = text[:length]
    return text.ljust(length) if pad else text


def to_name(text: str) -> str:
    """Cut where a name ends, between characters."""
    return text.encode()[:NAME_BYTES_MAX].decode("utf-8", "ignore")


def ascii_lower(text: str) -> str:
    """As `lower` under the collation C."""
    return text.encode().lower().decode()


def ascii_upper(text: str) -> str:
    """As `upper` under the collation C."""
    return text.encode().upper().decode()


def like(text: str, pattern: str) -> bool:
    """Whether the whole text fits the pattern."""
    return like_pattern(pattern).fullmatch(text) is not None


def ilike(text: str, pattern: str) -> bool:
    """The same, with A to Z and a to z alike."""
    return like(ascii_lower(text), ascii_lower(pattern))


@lru_cache(_PATTERNS_KEPT)
def like_pattern(pattern: str) -> "re.Pattern[str]":
    """The pattern as a regular expression; neighbouring percent signs are one, or matching could take for ever."""
    pieces: list[str] = []
    for kind, text in like_pieces(pattern):
        piece = re.escape(text) if kind == "text" else ".*?" if kind == "%" else "."
        if not (piece == ".*?" and pieces and pieces[-1] == ".*?"):
            pieces.append(piece)
    return re.compile(_without_backtracking(pieces), re.DOTALL)


def _without_backtracking(pieces: list[str]) -> str:
    """Between two percent signs the first match is the right one: no need to try others, hence atomic groups."""
    groups: list[list[str]] = [[]]
    for piece in pieces:
        groups.append([]) if piece == ".*?" else groups[-1].append(piece)
    if len(groups) == 1:
        return "".join(groups[0])
    first, *middle, last = ("".join(group) for group in groups)
    return first + "".join(f"(?>.*?{group})" for group in middle) + f".*{last}"


def like_pieces(pattern: str) -> list[tuple[str, str]]:
    """The pattern taken apart: ("text", ..), ("%", "") and ("_", "")."""
    pieces: list[tuple[str, str]] = []
    position = 0
    while position < len(pattern):
        letter = pattern[position]
        if letter in "%_":
            pieces.append((letter, ""))
        else:
            if letter == "\\":
                position += 1
                if position == len(pattern):
                    raise Invalid("LIKE pattern must not end with escape character")
                letter = pattern[position]
            if pieces and pieces[-1][0] == "text":
                letter = pieces.pop()[1] + letter
            pieces.append(("text", letter))
        position += 1
    return pieces


def like_escape(pattern: str, escape: str) -> str:
    """The same pattern with a backslash as its escape character."""
    if len(escape) > 1:
        raise Invalid("invalid escape string")
    if escape == "\\":
        return pattern
    if not escape:
        return pattern.replace("\\", "\\\\")
    result = []
    after_escape = False
    for letter in pattern:
        if letter == escape and not after_escape:
            result.append("\\")
            after_escape = True
            continue
        result.append("\\\\" if letter == "\\" and not after_escape else letter)
        after_escape = False
    return "".join(result)
