"""What the commands share that talk to Postgres or to a running server: the options that say where it is."""

from pathlib import Path
from typing import Annotated

from cdc.config.options import default, option

Database = Annotated[str, option("database-url", "-d", "--database", show_envvar=True)]

DatabaseUrl = Database

DEFAULT_URL: str = default("url")

Url = Annotated[str, option("url", show_envvar=True)]

Secret = Annotated[str | None, option("secret", help="The server's secret.", show_envvar=True)]

DataDir = Annotated[Path, option("data-dir", show_envvar=True)]

Slot = Annotated[str, option("slot")]

Publication = Annotated[str, option("publication")]

Manual = Annotated[bool, option("manual", help="Nothing is altered for you: show what to run.")]
