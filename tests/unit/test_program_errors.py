"""Errors of the program: each says its code and what to do, and survives a pickle."""

import pickle

import pytest

from cdc import errors
from cdc.admin_client import refused
from cdc.errors import AnswerRefused, ProgramError

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ProgramError)]


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_says_code_message_and_hint_and_survives_a_pickle(kind: type[ProgramError]) -> None:
    error = kind("it broke")
    assert str(error) == f"[{kind.code}] it broke. {kind.hint}".removesuffix(". ")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled in the same line
    assert (type(copy), str(copy)) == (kind, str(error))


def test_a_servers_refusal_keeps_its_code_and_fields() -> None:
    error = refused({"code": "definition_error", "message": "m", "hint": "h", "fields": {"where": ["a", "b"]}})
    assert isinstance(error, AnswerRefused)
    assert (error.reason, dict(error.fields)) == ("definition_error", {"where": ("a", "b")})
    assert str(error) == "[definition_error] not a shape. h"
    assert str(refused({"code": "x", "message": "m", "hint": ""})) == "[x] m"
