"""The harness finds what it is for: each scenario here but the first has a defect that only a crash shows."""

import pytest

from storage.memory_disk import MemoryDisk
from tests.crash.harness import Acknowledge, Crash, CrashFound, Places, Scenario, for_each_crash

NAMES = ("log/first", "log/second")
BYTES = bytes(range(1, 256)) * 5  # three sectors, no zeros


def write(disk: MemoryDisk, path: str) -> None:
    disk.create(path)
    disk.append(path, [BYTES[:600], BYTES[600:]])


def careful(disk: MemoryDisk, acknowledge: Acknowledge[str]) -> None:
    disk.make_folder("log")
    disk.sync_folder("")
    for name in NAMES:
        write(disk, name)
        disk.sync(name)
        disk.sync_folder("log")
        acknowledge(name)


def acknowledges_before_its_sync(disk: MemoryDisk, acknowledge: Acknowledge[str]) -> None:
    disk.make_folder("log")
    disk.sync_folder("")
    for name in NAMES:
        write(disk, name)
        disk.sync_folder("log")
        acknowledge(name)
        disk.sync(name)


def never_syncs_the_names(disk: MemoryDisk, acknowledge: Acknowledge[str]) -> None:
    disk.make_folder("log")
    disk.sync_folder("")
    for name in NAMES:
        write(disk, name)
        disk.sync(name)
        acknowledge(name)


def never_syncs_the_folder_above(disk: MemoryDisk, acknowledge: Acknowledge[str]) -> None:
    disk.make_folder("log")
    for name in NAMES:
        write(disk, name)
        disk.sync(name)
        disk.sync_folder("log")
        acknowledge(name)


def removes_the_old_before_the_new_is_certain(disk: MemoryDisk, acknowledge: Acknowledge[str]) -> None:
    careful(disk, lambda _: None)
    acknowledge(NAMES[0])
    disk.remove(NAMES[0])
    write(disk, "log/new")
    disk.sync("log/new")
    disk.rename("log/new", NAMES[0])
    disk.sync_folder("log")


def takes_the_crash_for_an_error(disk: MemoryDisk, acknowledge: Acknowledge[str]) -> None:
    disk.make_folder("log")
    disk.sync_folder("")
    for name in NAMES:
        try:
            write(disk, name)
            disk.sync(name)
            disk.sync_folder("log")
        finally:
            acknowledge(name)


def acknowledged_files_are_whole(disk: MemoryDisk, acknowledged: list[str]) -> None:
    for name in acknowledged:
        assert disk.read(name, 0, 10_000) == BYTES


@pytest.mark.parametrize("place", ["syncs", "operations"])
def test_a_careful_scenario_survives_every_crash(place: Places) -> None:
    whole = MemoryDisk()
    careful(whole, lambda _: None)
    places_count = whole.syncs if place == "syncs" else whole.operations
    checked_count = for_each_crash(careful, acknowledged_files_are_whole, place=place, images=1)
    assert checked_count == 3 * (2 * places_count + 1)  # before, after, and once when all was done


DEFECTS: list[Scenario[str]] = [
    acknowledges_before_its_sync,
    never_syncs_the_names,
    never_syncs_the_folder_above,
    removes_the_old_before_the_new_is_certain,
]


@pytest.mark.parametrize("scenario", DEFECTS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("place", ["syncs", "operations"])
def test_a_defect_is_found_and_its_crash_can_be_repeated(scenario: Scenario[str], place: Places) -> None:
    with pytest.raises(CrashFound, match="only=Crash") as found:
        for_each_crash(scenario, acknowledged_files_are_whole, place=place)
    (first_line, _) = str(found.value).split("\n", 1)
    crash = eval(first_line.removeprefix("only="), {"Crash": Crash})  # noqa: S307 - the text can be pasted
    with pytest.raises(CrashFound) as repeated:
        for_each_crash(scenario, acknowledged_files_are_whole, only=crash)
    assert str(repeated.value) == str(found.value)


def test_nothing_is_acknowledged_after_the_crash() -> None:
    for_each_crash(takes_the_crash_for_an_error, acknowledged_files_are_whole)


def test_a_torn_write_is_among_the_images() -> None:
    seen = set()

    def scenario(disk: MemoryDisk, acknowledge: Acknowledge[None]) -> None:
        disk.create("file")
        disk.sync_folder("")
        disk.append("file", [BYTES])
        disk.sync("file")

    def check(disk: MemoryDisk, acknowledged: list[None]) -> None:
        content = disk.contents().get("file")
        seen.add(
            "absent" if content is None else "whole" if content == BYTES else "cut" if 0 not in content else "torn"
        )

    for_each_crash(scenario, check, images=20)
    assert seen == {"absent", "whole", "cut", "torn"}


def test_a_scenario_may_start_from_what_a_crash_left() -> None:
    def start() -> MemoryDisk:
        disk = MemoryDisk()
        disk.create("file")
        return disk.crash_image(lambda count: count - 1)

    def scenario(disk: MemoryDisk, acknowledge: Acknowledge[str]) -> None:
        assert disk.exists("file")
        acknowledge("file")
        disk.sync("file")

    for_each_crash(scenario, lambda disk, acknowledged: [disk.size(name) for name in acknowledged], disk=start)


def test_a_place_that_the_scenario_never_reaches_is_its_end() -> None:
    end = Crash("operations", 1_000, after=False, image="strictest")
    seen: list[list[str]] = []
    for_each_crash(careful, lambda disk, acknowledged: seen.append(acknowledged), only=end)
    assert seen == [list(NAMES)]
