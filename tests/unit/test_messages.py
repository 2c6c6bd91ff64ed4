"""What the demo's processes say is understood as it was meant, and what is no message is for people."""

from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.demo.messages import (
    Failed,
    LargeBegun,
    Message,
    Progress,
    Read,
    ReadAll,
    Recovered,
    Stopped,
    heard,
    line_of,
)

KINDS = (Recovered, Progress, LargeBegun, Stopped, Read, ReadAll, Failed)
NUMBERS = st.integers(0, 2**62)
VALUES = {
    int: NUMBERS,
    float: st.floats(0, 1e6),
    str: st.text(st.characters(codec="utf-8")),
    dict[str, int]: st.dictionaries(st.text(st.characters(codec="utf-8")), NUMBERS),
    dict[str, str]: st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))),
}


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{name: VALUES[hint] for name, hint in get_type_hints(kind).items()})


@given(st.one_of([messages(kind) for kind in KINDS]))
def test_a_message_is_heard_as_it_was_told(message: Message) -> None:
    line = line_of(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert heard(line) == message


@pytest.mark.parametrize(
    "line", [b"cut the torn tail", b"{}", b"[1]", b'{"is": "Nothing"}', b'{"is": "Read"}', b"\xff"]
)
def test_anything_else_is_text(line: bytes) -> None:
    assert isinstance(heard(line + b"\n"), str)
