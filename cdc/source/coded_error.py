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
        parts = [f"[{self.code}] {self.message}", f"({facts})" if facts else "", self.advice]
        return " ".join(part for part in parts if part)

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.message, self.advice, self.facts)


def rebuild(kind: type[CodedError], message: str, advice: str, facts: dict[str, Any]) -> CodedError:
    """What a pickled error becomes again."""
    return kind(message, hint=advice, **facts)
