"""What can go wrong with the program itself: a class for each condition, with a code, the facts, and a hint."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class ProgramError(Exception):
    """The root of the program's errors. Picklable, since errors cross to other processes."""

    code: ClassVar[str] = "program"
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


def _rebuild(kind: type[ProgramError], message: str, advice: str, facts: dict[str, Any]) -> ProgramError:
    return kind(message, hint=advice, **facts)


class AddressTaken(ProgramError):
    """Nobody can listen at the host and port that were asked for."""

    code = "address_taken"
    hint = "Choose another --host or --port, or stop the process that listens there."


class AddressOpen(ProgramError):
    """Other machines could connect, and nothing would ask them for a secret."""

    code = "address_open"
    hint = "Give a --secret, listen at 127.0.0.1, or say --insecure if something else keeps strangers out."


class SlotDiffers(ProgramError):
    """The folder's data came from another slot than the one that was asked for."""

    code = "slot_differs"
    hint = "Start with the slot that is named, or with another data folder."


class ServerSilent(ProgramError):
    """No shapelog server answers at the URL."""

    code = "server_silent"
    hint = "Start one with `shapelog serve`, or say with --url where it is."


class SecretRefused(ProgramError):
    """The server wants a secret, and this one it does not know."""

    code = "secret_refused"
    hint = "Give the server's secret: --secret, or SHAPELOG_SECRET."


class AnswerRefused(ProgramError):
    """The server understood, and says no; the message is its own."""

    code = "answer_refused"
    hint = "Mend what the message names, then ask again."
    reason: str = code
    """The server's code for it."""
    fields: Mapping[str, Sequence[str]] = {}
    """What is wrong with each field of the request."""

    def __str__(self) -> str:
        return f"[{self.reason}] {self.message} {self.advice}".rstrip()


class NothingToRecover(ProgramError):
    """What was to be recovered is not there, or is not at fault."""

    code = "nothing_to_recover"
    hint = "`shapelog recover --data-dir DIR` says what is wrong with a folder, if anything is."
