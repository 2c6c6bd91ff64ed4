"""What all kinds of values have in common: they may be anything, and a text may be no value."""

from typing import Any, TypeAlias

Value: TypeAlias = Any
"""A value in Python, of the kind that `Constant` lists for its type."""


class Invalid(ValueError):
    """A text is no value of its type, or a calculation has no result; the message is in Postgres' words."""
