"""The bounds of the flush tracker, each with its unit and reason."""

from typing import Final

TXN_OFFSETS_MAX: Final = 1 << 20
"""Transactions of one shape between two flushes. At 24 bytes each, 24 MiB; a flush is due long before by bytes."""

STALE_BOUNDS_SHARE: Final = 8
"""Where an eighth of the heap's entries turn out to be old in one look, all are renewed at once: that costs as much as
to put some hundred of ten thousand in their places."""

STALE_BOUNDS_SLACK: Final = 64
"""Entries of the heap that may belong to detached shapes, on top of as many as there are shapes, before they are
swept out: so few that nobody sees them, and so many that a sweep is rare."""
