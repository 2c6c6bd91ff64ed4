"""How a session must be set so that its values become the same text, whoever's session it is.

Postgres writes a value by the settings of the session that asks. The stream's and a snapshot's must agree, and neither
may depend on what the role, the database or the machine has set. Pure.
"""

from collections.abc import Mapping
from typing import Final

TEXT_SETTINGS: Final[Mapping[str, str]] = {
    "client_encoding": "UTF8",
    "bytea_output": "hex",
    "DateStyle": "ISO, DMY",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "IntervalStyle": "iso_8601",
    # Names of tables, types and functions (`regclass` ..) are written with their schema unless it is on the path.
    "search_path": "pg_catalog",
}


def text_options() -> str:
    """The settings as a connection's `options`."""
    return " ".join(f"-c {name}={value.replace(' ', '')}" for name, value in TEXT_SETTINGS.items())
