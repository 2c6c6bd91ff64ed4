"""The settings of the program, one table for flags, variables and the file. Pure.

A setting `long-poll-timeout` is the option `--long-poll-timeout`, the variable `SHAPELOG_LONG_POLL_TIMEOUT`, and the
key `long-poll-timeout` of the file. docs/settings.md lists them all.

Invariant: a value that was checked is of its setting's kind and within its bounds, wherever it came from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from cdc.errors import SettingInvalid
from cdc.limits import WAL_ALERT_PERCENT, WAL_END_PERCENT, WAL_PAUSE_PERCENT
from shapes.http.limits import LONG_POLL_SECONDS
from shapes.limits import LOG_BYTES, SHAPE_IDLE_SECONDS, SHAPES_MAX
from storage.limits import CHUNK_WIRE_BYTES

Value = str | int | float | bool | Path | None


class Kind(StrEnum):
    """What a value is; the text is how an error calls it."""

    TEXT = "a text"
    INTEGER = "a whole number"
    NUMBER = "a number"
    FLAG = "true or false"
    PATH = "a path, as text"


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table."""

    name: str
    kind: Kind
    text: str
    default: Value = None
    metavar: str | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    is_secret: bool = False
    absent: str | None = None
    """How help shows that there is none."""
    also: tuple[str, ...] = ()
    """Other variables that are asked after its own."""

    @property
    def variables(self) -> tuple[str, ...]:
        """In the order in which they are asked."""
        return (variable_of(self.name), *self.also)

    @property
    def right(self) -> str:
        """What would be right, for people."""
        if self.choices:
            return " or ".join(self.choices)
        low, high = (None if bound is None else f"{bound:g}" for bound in (self.low, self.high))
        bounds = f" from {low} to {high}" if low and high else f" of at least {low}" if low else ""
        return self.kind.value + bounds

    def checked(self, value: object) -> Value:
        """A value of the file, which has types; raises `SettingInvalid`."""
        fits: bool
        match self.kind:
            case Kind.FLAG:
                fits = isinstance(value, bool)
            case Kind.INTEGER:
                fits = isinstance(value, int) and not isinstance(value, bool)
            case Kind.NUMBER:
                fits = isinstance(value, int | float) and not isinstance(value, bool)
            case Kind.TEXT | Kind.PATH:
                fits = isinstance(value, str)
        if not fits:
            raise self._wrong(value)
        return self._within(value)

    def read(self, text: str) -> Value:
        """A value of a variable or a flag, which is a text; raises `SettingInvalid`."""
        value: Value = text
        try:
            match self.kind:
                case Kind.FLAG:
                    value = _FLAGS[text.strip().lower()]
                case Kind.INTEGER:
                    value = int(text)
                case Kind.NUMBER:
                    value = float(text)
                case Kind.TEXT | Kind.PATH:
                    pass
        except (KeyError, ValueError):
            raise self._wrong(text) from None
        return self._within(value)

    def _within(self, value: object) -> Value:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not ((self.low is None or value >= self.low) and (self.high is None or value <= self.high)):
                raise self._wrong(value)
            return float(value) if self.kind is Kind.NUMBER else value
        if self.choices and value not in self.choices:
            raise self._wrong(value)
        if self.kind is Kind.PATH:
            return Path(str(value))
        assert isinstance(value, str | bool), "the kinds are all"
        return value

    def _wrong(self, value: object) -> SettingInvalid:
        found = "something" if self.is_secret else _shown(value)
        return SettingInvalid(f"{self.name} is {found}, and must be {self.right}")


_FLAGS: Final = dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True) | dict.fromkeys(
    ("0", "false", "f", "no", "n", "off"), False
)


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return "SHAPELOG_" + name.upper().replace("-", "_")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"the text {value!r}" if isinstance(value, str) else str(value)


_WHERE: Final = "Where Postgres is: a URL or key=value pairs, as libpq takes them; its PG* variables hold too."

SETTINGS: Final[Mapping[str, Setting]] = {
    setting.name: setting
    for setting in (
        Setting("data-dir", Kind.PATH, "The data folder.", metavar="DIR"),
        Setting("database-url", Kind.TEXT, _WHERE, "", "WHERE", is_secret=True, also=("DATABASE_URL",)),
        Setting("host", Kind.TEXT, "Listen here.", "127.0.0.1"),
        Setting("port", Kind.INTEGER, "0 is any free one.", 3000, low=0, high=65535),
        Setting("secret", Kind.TEXT, "Ask everybody for it.", metavar="TEXT", is_secret=True),
        Setting("insecure", Kind.FLAG, "Listen to strangers without a secret.", default=False),
        Setting("allowed-host", Kind.TEXT, "Be asked by these names too.", metavar="NAMES"),
        Setting("slot", Kind.TEXT, "The replication slot.", "shapelog", "NAME"),
        Setting("publication", Kind.TEXT, "The publication.", "shapelog", "NAME"),
        Setting("manual", Kind.FLAG, "Alter nothing on the server: say what to run.", default=False),
        Setting(
            "shape-idle", Kind.NUMBER, "End shapes without a name after so long.", SHAPE_IDLE_SECONDS, "SECONDS", 1
        ),
        Setting("log-bytes", Kind.INTEGER, "Of a shape's log; older rows are folded.", LOG_BYTES, "BYTES", 1_000_000),
        Setting("log-age", Kind.NUMBER, "Fold rows that are older.", metavar="SECONDS", low=60, absent="never"),
        Setting("log-compaction", Kind.FLAG, "Make updates of one row one, before a log is folded.", False),
        Setting("max-shapes", Kind.INTEGER, "Shapes that live at a time.", SHAPES_MAX, "N", 1),
        Setting(
            "heartbeat",
            Kind.NUMBER,
            "Commit something so often, for a quiet database on a busy server.",
            metavar="SECONDS",
            low=0.1,
            absent="never",
        ),
        Setting("allow-delete", Kind.FLAG, "Let requests end shapes.", default=False),
        Setting("chunk-bytes", Kind.INTEGER, "Of an answer, for new shapes.", CHUNK_WIRE_BYTES, "BYTES", 1000),
        Setting("cache-max-age", Kind.INTEGER, "Caches keep answers so long.", 60, "SECONDS", 0),
        Setting("cache-stale-age", Kind.INTEGER, "And so long while they ask again.", 300, "SECONDS", 0),
        Setting("long-poll-timeout", Kind.NUMBER, "Hold live requests so long.", LONG_POLL_SECONDS, "SECONDS", 0.1, 40),
        Setting("token-secret", Kind.TEXT, "Shape tokens are signed with it.", metavar="TEXT", is_secret=True),
        Setting("token-keys", Kind.PATH, "Or with keys of this JWKS file.", metavar="FILE"),
        Setting("lake", Kind.PATH, "The lake's folder, for the console to show.", metavar="DIR"),
        Setting("log-format", Kind.TEXT, "Events, on standard error.", "text", choices=("text", "json")),
        Setting(
            "wal-budget",
            Kind.INTEGER,
            "WAL that the slot may keep, where the server sets no limit.",
            metavar="MB",
            low=1,
            absent="the server's limit",
        ),
        Setting(
            "wal-alert-at",
            Kind.NUMBER,
            "Of the WAL budget: tell of it. 0 is never.",
            WAL_ALERT_PERCENT,
            "PERCENT",
            0,
            100,
        ),
        Setting("wal-pause-at", Kind.NUMBER, "Of it: begin no snapshots.", WAL_PAUSE_PERCENT, "PERCENT", 0, 100),
        Setting("wal-end-at", Kind.NUMBER, "Of it: end the shape that holds it.", WAL_END_PERCENT, "PERCENT", 0, 100),
        Setting("url", Kind.TEXT, "Where the server listens.", "http://127.0.0.1:3000", "URL"),
    )
}
