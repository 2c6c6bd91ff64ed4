"""Errors of storage: each has a code of its own, says its facts and what to do, and survives a pickle."""

import errno
import pickle

import pytest

from storage import errors
from storage.errors import (
    FileVanished,
    LogFault,
    PermissionLost,
    SharedDiskFault,
    StorageError,
    from_os_error,
)
from storage.offset import LogOffset

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, StorageError)]


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_says_code_message_facts_and_hint(kind: type[StorageError]) -> None:
    error = kind("it broke", log=7, at=LogOffset(1, 2))
    advice = f". {kind.hint}" if kind.hint else ""
    assert str(error) == f"[{kind.code}] it broke (log=7, at=1_2){advice}"
    assert str(kind("it broke?")) == f"[{kind.code}] it broke?{advice.removeprefix('.')}"
    assert kind is StorageError or kind.hint.endswith(".")


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_a_pickle(kind: type[StorageError]) -> None:
    error = kind("it broke", log=7, at=LogOffset(1, 2))
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled one line above
    assert type(copy) is kind
    assert (copy.message, copy.facts, str(copy)) == (error.message, error.facts, str(error))


def test_codes_are_different() -> None:
    assert len({kind.code for kind in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize(
    ("number", "kind", "is_named"),
    [
        (errno.ENOSPC, SharedDiskFault, True),
        (errno.EDQUOT, SharedDiskFault, True),
        (errno.EIO, SharedDiskFault, True),
        (errno.EROFS, SharedDiskFault, True),
        (errno.EMFILE, SharedDiskFault, True),
        (errno.ENFILE, SharedDiskFault, True),
        (errno.EACCES, PermissionLost, False),
        (errno.EPERM, PermissionLost, False),
        (errno.ENOENT, FileVanished, False),
        (errno.ENOTDIR, FileVanished, False),
        (errno.ESTALE, FileVanished, False),
        (errno.EFBIG, LogFault, True),
        (errno.EISDIR, LogFault, True),
    ],
)
def test_an_errno_decides_whose_fault_it_is(number: int, kind: type[StorageError], is_named: bool) -> None:
    error = from_os_error(OSError(number, "broken"), "logs/7/1.log", log=7)
    assert type(error) is kind
    assert error.message == "logs/7/1.log: broken"
    assert error.facts == {"log": 7} | ({"errno": errno.errorcode[number]} if is_named else {})
    shared = from_os_error(OSError(number, "broken"), "journal/1", shared=True, log=7)
    assert type(shared) is SharedDiskFault
    assert shared.facts == {"errno": errno.errorcode[number], "log": 7}


def test_an_error_without_a_number_is_the_logs() -> None:
    error = from_os_error(OSError("something"), "file")
    assert type(error) is LogFault
    assert error.message == "file: something"
    assert error.facts == {"errno": "?"}
    assert type(from_os_error(OSError("something"), "file", shared=True)) is SharedDiskFault


def test_the_families_do_not_overlap() -> None:
    assert not issubclass(SharedDiskFault, LogFault)
    for kind in CLASSES:
        assert issubclass(kind, StorageError)
        assert not issubclass(kind, OSError)
