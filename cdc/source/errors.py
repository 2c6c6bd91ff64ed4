"""What can go wrong at the Postgres end: a class for each condition, with a code, the facts, and a hint for a person.

Three families decide what happens next, and nothing else needs to look closer:

- `ConnectionFault`: the server or the way to it failed. The session connects again, later and later, and loses nothing.
- `Refusal`: going on would lose or double changes, or cannot work. Nobody tries again before a person has acted.
- `ProtocolError`: the server said what no server says. The connection is closed; what it brought is not trusted.
"""

from typing import Any, ClassVar


class SourceError(Exception):
    """The root of the source's errors. Picklable, since errors cross to other processes."""

    code: ClassVar[str] = "source"
    hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts
        self.advice = self.hint if hint is None else hint

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        parts = [f"[{self.code}] {self.message}", f"({facts})" if facts else "", self.advice]
        return " ".join(part for part in parts if part)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.advice, self.facts)


def _rebuild(kind: type[SourceError], message: str, advice: str, facts: dict[str, Any]) -> SourceError:
    return kind(message, hint=advice, **facts)


class ConnectionFault(SourceError):
    """The connection is gone, or could not be made; another attempt may do."""

    code = "connection_fault"
    hint = "The session connects again by itself; if this goes on, look at the server's log."


class ProtocolError(SourceError):
    """The server's bytes make no sense: damage on the way, or a protocol that this version does not know."""

    code = "protocol_error"
    hint = "Check the server's version against the supported ones, and report the message if it is one of them."


class Refusal(SourceError):
    """Something only a person can decide or mend."""

    code = "refused"
    hint = "Mend what the message names, then start again."
