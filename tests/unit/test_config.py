"""Settings: their places in order, every mistake with its place and what would be right, and no secret ever shown."""

import os
from pathlib import Path
from typing import Any
from unittest import mock

import orjson
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from cdc.cli import app, main
from cdc.config.defaults import defaults_from
from cdc.config.file_text import FileSettings, read_settings
from cdc.config.find import find_file
from cdc.config.options import flags_in, setting_of
from cdc.config.resolved import resolve, unknown_variables
from cdc.config.settings import SETTINGS, Kind, Setting
from cdc.errors import SettingInvalid
from cdc.limits import SETTINGS_FILE_BYTES_MAX

PROGRAM: Any = typer.main.get_command(app)
SERVE: Any = PROGRAM.commands["serve"]
OF_SERVE = {setting.name: one.name for one in SERVE.params if (setting := setting_of(one)) is not None}


def values(setting: Setting) -> st.SearchStrategy[Any]:
    low = 0 if setting.low is None else setting.low
    high = low + 20 if setting.high is None else setting.high
    if setting.choices:
        return st.sampled_from(setting.choices)
    match setting.kind:
        case Kind.FLAG:
            return st.booleans()
        case Kind.INTEGER:
            return st.integers(int(low), int(high))
        case Kind.NUMBER:
            return st.floats(low, high).map(lambda number: round(number, 1)).filter(lambda number: low <= number)
        case Kind.TEXT | Kind.PATH:
            return st.text(st.sampled_from("abcxyz/.= 1"), min_size=1).filter(lambda text: text.strip() == text)


@st.composite
def said(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What flags, variables and a file say of the settings that `serve` has."""
    places: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})
    for name in OF_SERVE:
        for place in places:
            if draw(st.integers(0, 3)) == 0:
                place[name] = draw(values(SETTINGS[name]))
    places[0].setdefault("data-dir", "data")
    return places


def text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(said())
def test_commands_and_config_show_agree(places: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
    """What a command gets is what `config show` tells: flag, then variable, then file, then default."""
    flags, variables, written = places
    flags = {name: value for name, value in flags.items() if value is not False}  # a flag that is given is true
    arguments = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags.items()]
    environment = {SETTINGS[name].variables[0]: text_of(value) for name, value in variables.items()}
    file = FileSettings("f", {name: SETTINGS[name].checked(value) for name, value in written.items()}, {})
    with mock.patch.dict(os.environ, environment, clear=True):
        context = SERVE.make_context("serve", list(arguments), default_map=defaults_from(SERVE, file))
    told = {one.setting.name: one for one in resolve(flags_in(SERVE, arguments), environment, file)}
    for name, parameter in OF_SERVE.items():
        got = context.params[parameter]
        assert getattr(got, "value", got) == told[name].value, name
        source = f"--{name}" if name in flags else "SHAPELOG_" if name in variables else "f" if name in written else "d"
        assert told[name].source.startswith(source)


def test_the_table_has_every_setting_of_every_command() -> None:
    used: set[str] = set()

    def walk(command: Any) -> None:
        for parameter in command.params:
            variables = parameter.envvar if isinstance(parameter.envvar, list) else [parameter.envvar]
            ours = {name for name in variables if str(name).startswith("SHAPELOG_")} - {"SHAPELOG_CONFIG"}
            setting = setting_of(parameter)
            assert not ours or (setting is not None and ours == {setting.variables[0]}), (command.name, parameter.name)
            used.update([setting.name] if setting is not None else [])
        for below in getattr(command, "commands", {}).values():
            walk(below)

    walk(PROGRAM)
    assert used == set(SETTINGS)


MISTAKES = [
    ("prot = 3000", "f:1: there is no setting 'prot'; did you mean port?"),
    ("# a\n\ndata_dir = 'x'", "f:3: there is no setting 'data_dir'; did you mean data-dir?"),
    ("zzzzz = 1", "f:1: there is no setting 'zzzzz'."),
    ("[serve]\nport = 1", "f:1: there is no setting 'serve'"),
    ("port = '3000'", "f:1: port is the text '3000', and must be a whole number from 0 to 65535"),
    ("port = 70000", "f:1: port is 70000, and must be a whole number from 0 to 65535"),
    ("port = true", "f:1: port is true, and must be a whole number"),
    ("port = 1.5", "port is 1.5, and must be a whole number"),
    ("insecure = 1", "insecure is 1, and must be true or false"),
    ("shape-idle = 0.5", "shape-idle is 0.5, and must be a number of at least 1"),
    ("host = 1", "host is 1, and must be a text"),
    ("log-format = 'xml'", "log-format is the text 'xml', and must be text or json"),
    ("wal-alert-at = 101", "wal-alert-at is 101, and must be a number from 0 to 100"),
    ("shape-idle = nan", "shape-idle is nan, and must be"),
    ("port = ", "f is no TOML: "),
    ("port = 1\nport = 2", "f is no TOML: "),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_says_where_and_what_is_right(text: str, message: str) -> None:
    with pytest.raises(SettingInvalid) as raised:
        read_settings(text, "f")
    assert message in f"{raised.value} "
    assert str(raised.value).startswith("[setting_invalid] f")


def test_a_secret_of_another_type_is_not_told() -> None:
    with pytest.raises(SettingInvalid) as raised:
        read_settings("secret = 271828", "f")
    assert "271828" not in str(raised.value)


def test_lines_are_those_of_the_keys() -> None:
    file = read_settings("# port = 1\n\nslot = 'a'\n'port' = 2\n", "f")
    assert (file.where("slot"), file.where("port"), file.where("host")) == ("f:3", "f:4", "f")


def test_places_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by a flag, named by the variable, of this folder, of the user; the first that is there."""
    here, home = tmp_path / "here", tmp_path / "home"
    for place, port in (("here", 3), ("home/shapelog", 4), ("home/.config/shapelog", 5)):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "shapelog.toml").write_text(f"port = {port}")
    for name, port in (("flag", 1), ("variable", 2)):
        (tmp_path / name).write_text(f"port = {port}")
    monkeypatch.chdir(here)

    def port_of(named: Path | None, **environment: str) -> Any:
        file = find_file(named, environment)
        return None if file is None else file.values["port"]

    variable, xdg = str(tmp_path / "variable"), str(home)
    assert port_of(tmp_path / "flag", SHAPELOG_CONFIG=variable) == 1
    assert port_of(None, SHAPELOG_CONFIG=variable, XDG_CONFIG_HOME=xdg) == 2
    assert port_of(None, XDG_CONFIG_HOME=xdg) == 3
    (here / "shapelog.toml").unlink()
    assert port_of(None, XDG_CONFIG_HOME=xdg) == 4
    assert port_of(None, HOME=str(home)) == 5
    assert port_of(None, HOME=str(here)) is None


def test_a_file_that_says_nothing_hides_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapelog.toml").write_text("port = 1")
    file = find_file(None, {"SHAPELOG_CONFIG": os.devnull})
    assert file is not None
    assert not file.values


def test_a_file_that_is_named_must_be_readable(tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid, match="nowhere cannot be read: No such file"):
        find_file(tmp_path / "nowhere", {})
    with pytest.raises(SettingInvalid, match="cannot be read: Is a directory"):
        find_file(tmp_path, {})
    (tmp_path / "latin").write_bytes(b"host = '\xe4'")
    with pytest.raises(SettingInvalid, match="is no UTF-8 text"):
        find_file(tmp_path / "latin", {})
    (tmp_path / "long").write_bytes(b"#" * (SETTINGS_FILE_BYTES_MAX + 1))
    with pytest.raises(SettingInvalid, match="it is no file of settings"):
        find_file(tmp_path / "long", {})


def test_variables_that_nothing_reads_are_told() -> None:
    found = list(unknown_variables({"SHAPELOG_PROT": "1", "SHAPELOG_PORT": "1", "HOME": "x", "SHAPELOG_CONFIG": "f"}))
    assert found == ["SHAPELOG_PROT is the variable of no setting; did you mean SHAPELOG_PORT?"]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and no variables of ours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    for name in [name for name in os.environ if name.startswith("SHAPELOG_") or name == "DATABASE_URL"]:
        monkeypatch.delenv(name)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code, *capsys.readouterr()


def test_config_show(alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://me:hidden@db/shop"
    (alone / "shapelog.toml").write_text(f"port = 1\nhost = 'a'\nsecret = 'hidden'\ndatabase-url = '{url}'\n")
    monkeypatch.setenv("SHAPELOG_HOST", "b")
    monkeypatch.setenv("SHAPELOG_SLOTT", "x")
    status, out, err = run(capsys, "config", "show", "--json", "--slot", "c")
    assert (status, err) == (0, "")
    facts = orjson.loads(out)
    shown = {one["setting"]: (one["value"], one["source"]) for one in facts["settings"]}
    assert shown["port"] == (1, "shapelog.toml:1")
    assert shown["host"] == ("b", "SHAPELOG_HOST")
    assert shown["slot"] == ("c", "--slot")
    assert shown["publication"] == ("shapelog", "default")
    assert shown["secret"] == ("****", "shapelog.toml:3")
    assert shown["database-url"] == ("user=me host=db dbname=shop", "shapelog.toml:4")
    assert (facts["file"], len(facts["unknown_variables"])) == ("shapelog.toml", 1)
    status, out, err = run(capsys, "config", "show")
    assert status == 0
    assert "did you mean SHAPELOG_SLOT?" in err
    assert "hidden" not in out + err
    assert ["host", "b", "SHAPELOG_HOST"] in [line.split() for line in out.splitlines()]


def test_config_show_refuses_what_serve_does(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "config", "show", "--prot", "1")
    assert (status, out) == (2, "")
    assert "No such option" in err
    assert run(capsys, "config", "show", "--port", "x")[2].startswith("shapelog: [setting_invalid] --port: port is the")
    assert "unexpected extra argument" in run(capsys, "config", "show", "port")[2]


def test_a_broken_file_hides_nothing_else(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (alone / "shapelog.toml").write_text("prot = 1")
    for arguments in (["serve", "--help"], ["--version"], ["--help"], ["shapes", "add", "--help"]):
        assert run(capsys, *arguments)[0] == 0
    assert "there is no folder" in run(capsys, "logs", "nowhere")[2]
    for arguments in (["serve"], ["status"], ["config", "show"], ["shapes", "list"], ["doctor"]):
        status, out, err = run(capsys, *arguments)
        assert (status, out) == (2, "")
        assert err.startswith(
            "shapelog: [setting_invalid] shapelog.toml:1: there is no setting 'prot'; did you mean port?"
        )


def test_the_file_reaches_commands_below_others(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (alone / "shapelog.toml").write_text("url = 'http://127.0.0.1:1'")
    for arguments in (["shapes", "list"], ["status"]):
        assert "127.0.0.1:1" in run(capsys, *arguments)[2]
