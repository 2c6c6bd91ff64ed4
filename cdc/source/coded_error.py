"""An error with a code, the facts, and a hint for a person: the shape that all of ours have above storage."""

from typing import Any, ClassVar


class CodedError(Exception):
    """What the roots of our errors have in common. Picklable, since errors cross to other processes."""

    code: ClassVar[str] = "error"
    hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts
        self.advice = self.hint if hint is None else hint

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        return with_advice(f"[{self.code}] {self.message}" + (f" ({facts})" if facts else ""), self.advice)

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.message, self.advice, self.facts)


def with_advice(said: str, advice: str) -> str:
    """What happened, and then what to do: two sentences, whether or not the first one ends as such."""
    stop = "" if said.endswith((".", "?", "!")) else "."
    return f"{said}{stop} {advice}" if advice else said


def rebuild(kind: type[CodedError], message: str, advice: str, facts: dict[str, Any]) -> CodedError:
    """What a pickled error becomes again."""
    return kind(message, hint=advice, **facts)
