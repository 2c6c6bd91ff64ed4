"""What can go wrong with the program itself: a class for each condition, with a code, the facts, and a hint."""

from collections.abc import Mapping, Sequence

from cdc.source.coded_error import CodedError, with_advice


class ProgramError(CodedError):
    """The root of the program's errors."""

    code = "program"


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
        return with_advice(f"[{self.reason}] {self.message}", self.advice)


class NothingToRecover(ProgramError):
    """What was to be recovered is not there, or is not at fault."""

    code = "nothing_to_recover"
    hint = "`shapelog recover --data-dir DIR` says what is wrong with a folder, if anything is."


class SettingInvalid(ProgramError):
    """A setting is unknown, or has a value that it cannot have; the message says where."""

    code = "setting_invalid"
    hint = "`shapelog config show` lists all settings, and where each value comes from."
