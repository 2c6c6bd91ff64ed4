"""A lake as of a moment: by LSN, by time, from Python and on the command line; and what a lake of states says."""

import asyncio
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc.cli import main
from cdc.http.console.lake_desk import LakeDesk
from cdc.source.lsn import Lsn, format_lsn
from storage.lake.errors import NoVersion
from storage.lake.lake_reader import Lake, LakeVersion
from storage.progress import ProgressRecord
from tests.lakes import Lakes


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Lakes:
    made = Lakes(tmp_path_factory.mktemp("moments"), accounts=5)
    writer = made.writer()
    for _ in range(5):
        made.bank.play(3)
        made.bank.confirm()
        writer.step(even_if_quiet=True)
    return made


def last(versions: list[LakeVersion], fits: Any) -> int | None:
    return max((one.number for one in versions if fits(one)), default=None)


def number_as_of(lake: Lake, when: int | dt.datetime) -> int | None:
    try:
        return lake.as_of(when).number
    except NoVersion:
        return None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_as_of_is_the_newest_version_that_is_not_later(lakes: Lakes, data: st.DataObject) -> None:
    lake = lakes.lake()
    versions = [*lake.versions()]
    at, shift = data.draw(st.sampled_from(versions)), data.draw(st.integers(-1, 1))
    lsn, time = at.lsn + shift, at.committed_at + dt.timedelta(microseconds=shift)
    assert number_as_of(lake, lsn) == last(versions, lambda one: one.lsn <= lsn)
    assert number_as_of(lake, time) == last(versions, lambda one: one.committed_at <= time)
    zone = dt.timezone(dt.timedelta(hours=data.draw(st.integers(-12, 14))))
    assert number_as_of(lake, time.astimezone(zone)) == number_as_of(lake, time)


def test_a_time_without_a_zone_is_local(lakes: Lakes) -> None:
    middle = lakes.lake().version(3)
    local = middle.committed_at.astimezone().replace(tzinfo=None)
    assert lakes.lake().as_of(local).number == 3


def test_a_version_before_the_first_commit_is_as_old_as_its_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that were there when the slot was made were committed at some time before that: nobody told when."""
    made = Lakes(tmp_path, accounts=5)
    bank, begun = made.bank, dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)
    bank.progress.append(ProgressRecord(bank.incarnation, bank.lsn, bank.catalog.state.version, 0))
    assert made.writer().step().version is not None
    assert number_as_of(made.lake(), begun) is None
    assert number_as_of(made.lake(), dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)) == 1
    assert facts(capsys, "lake", "versions", made.root)[0]["committed"] is None
    with pytest.raises(SystemExit):
        main(["lake", "versions", str(made.root)])
    assert capsys.readouterr().out.splitlines()[1].split()[2:] == ["-", "2"]
    shown = asyncio.run(LakeDesk(made.root).facts())["versions"]
    assert [one["committed_at"] for one in shown] == [None], "the console says so too"


def test_both_kinds_of_moments_on_the_command_line(lakes: Lakes, capsys: pytest.CaptureFixture[str]) -> None:
    for version in lakes.lake().versions():
        for moment in (format_lsn(Lsn(version.lsn)), version.committed_at.isoformat()):
            shown = facts(capsys, "lake", "show", lakes.root, "--as-of", moment)
            assert {one["version"] for one in shown} == {version.number}, moment


def test_a_lake_of_states_says_what_is_safe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no history, so no holes in one."""
    made = Lakes(tmp_path, accounts=5)
    made.bank.confirm()
    made.writer(state_only=True).step()
    shown = facts(capsys, "lake", "show", made.root)
    assert [(one["table"], one["gaps"], one["missing files"]) for one in shown] == [
        ("checking", 0, []),
        ("savings", 0, []),
    ]
    assert {one["safe below"] for one in shown} == {format_lsn(Lsn(made.latest().lsn))}


def facts(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    return json.loads(out)
