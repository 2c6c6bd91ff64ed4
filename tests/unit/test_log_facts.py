"""The facts of a log: they round trip, other JSON is refused by name, and a crash leaves all of a log or none."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import layout, small_file
from storage.errors import FileVanished, UnknownFormat, UnknownLog
from storage.log_facts import LogFacts, list_logs, read_log, remove_log, write_log
from storage.memory_disk import MemoryDisk, luckiest
from storage.shape_log import Mode
from tests.crash.harness import for_each_crash

FACTS = LogFacts(7, "a-handle", ("id",), Mode.COMPACTED, 1000, {"table": "public.orders"})

json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
facts = st.builds(
    LogFacts,
    log=st.integers(1, 2**63 - 1),
    handle=st.text(max_size=20),
    key_columns=st.lists(st.text(max_size=9), max_size=3).map(tuple),
    mode=st.sampled_from(Mode),
    chunk_bytes=st.integers(1, 2**40),
    more=st.dictionaries(st.text(max_size=5), json, max_size=3),
)


@given(facts)
def test_round_trip(written: LogFacts) -> None:
    assert LogFacts.decode(written.encode(), "a path") == written


@given(json)
def test_other_json_is_refused_by_name(content: object) -> None:
    with pytest.raises(UnknownFormat):
        LogFacts.decode(orjson.dumps(content), "a path")


def without(name: str) -> dict[str, Any]:
    content: dict[str, Any] = small_file.decode(FACTS.encode(), "")
    del content[name]
    return content


BROKEN: list[dict[str, Any]] = [
    without("log"),
    without("handle"),
    without("key_columns"),
    without("mode"),
    without("format"),
    small_file.decode(FACTS.encode(), "") | {"format": 2},
    small_file.decode(FACTS.encode(), "") | {"format": None},
    small_file.decode(FACTS.encode(), "") | {"mode": "sideways"},
    small_file.decode(FACTS.encode(), "") | {"key_columns": 3},
    small_file.decode(FACTS.encode(), "") | {"of_a_later_version": 3},
]


@pytest.mark.parametrize("content", [small_file.encode(one) for one in BROKEN] + [b"", b"{", FACTS.encode()[:-1]])
def test_broken_facts_are_refused_with_their_path(content: bytes) -> None:
    with pytest.raises(UnknownFormat) as refused:
        LogFacts.decode(content, "logs/7/log.json")
    assert refused.value.facts["path"] == "logs/7/log.json"


def test_a_log_is_written_read_listed_and_removed() -> None:
    disk = MemoryDisk()
    disk.make_folder(layout.LOGS)
    write_log(disk, FACTS)
    write_log(disk, LogFacts(12, "another"))
    assert read_log(disk, 7) == FACTS
    assert list_logs(disk) == [7, 12]
    disk.create("logs/7/a.lease")
    remove_log(disk, 7)
    remove_log(disk, 7)
    assert list_logs(disk) == [12]
    assert not disk.exists("logs/7")
    with pytest.raises(UnknownLog):
        read_log(disk, 7)


def test_a_folder_without_facts_is_no_log() -> None:
    disk = MemoryDisk()
    for folder in ("logs/7", "logs/notes", "logs/8"):
        disk.make_folder(folder)
    write_log(disk, LogFacts(8, "a-handle"))
    disk.create("logs/9")
    assert list_logs(disk) == [8]
    for number in (7, 10):  # half born, half removed, or never there
        with pytest.raises(UnknownLog):
            read_log(disk, number)
    disk.create("logs/7/0.base")
    for number in (7, 9):
        with pytest.raises(FileVanished):
            read_log(disk, number)


def test_what_an_unfinished_birth_left_is_no_obstacle() -> None:
    disk = MemoryDisk()
    disk.make_folder("logs/7")
    disk.create("logs/7/log.json.tmp")
    disk.append("logs/7/log.json.tmp", [b"half of it"])
    write_log(disk, FACTS)
    assert read_log(disk, 7) == FACTS


def folder_of_logs() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folder(layout.LOGS)
    return disk.crash_image(luckiest)


def test_a_crash_leaves_a_log_or_none() -> None:
    def scenario(disk: MemoryDisk, acknowledge: Callable[[str], None]) -> None:
        write_log(disk, FACTS)
        acknowledge("born")
        disk.create("logs/7/a.lease")
        disk.sync_folder("logs/7")
        acknowledge("removing")
        remove_log(disk, 7)
        acknowledge("removed")

    def check(disk: MemoryDisk, acknowledged: list[str]) -> None:
        is_there = list_logs(disk) == [7]
        if is_there:
            assert read_log(disk, 7) == FACTS
        assert not is_there or "removed" not in acknowledged
        assert is_there or "born" not in acknowledged or "removing" in acknowledged
        remove_log(disk, 7)  # may be repeated
        assert disk.names("logs") == []

    assert for_each_crash(scenario, check, disk=folder_of_logs) > 50
