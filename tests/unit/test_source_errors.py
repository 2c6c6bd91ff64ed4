"""The errors of the source: told apart, explained, and able to cross to another process."""

import pickle

import psycopg
import pytest

from cdc.source import errors
from cdc.source.connections import printable, translate
from cdc.source.errors import ConnectionFault, ProtocolError, Refusal, ServerStopping, SlotBusy, SourceError


def kinds(root: type[SourceError] = SourceError) -> list[type[SourceError]]:
    found = root.__subclasses__()
    return found + [below for kind in found for below in kinds(kind)]


def test_every_error_has_its_own_code_and_a_hint() -> None:
    codes = [kind.code for kind in kinds()]
    assert len(codes) == len(set(codes))
    assert [kind for kind in kinds() if not vars(kind).get("hint") and kind.hint == ""] == []
    assert [kind for kind in kinds() if "code" not in vars(kind)] == []


def test_every_error_belongs_to_one_family() -> None:
    families = (ConnectionFault, Refusal, ProtocolError)
    assert [kind for kind in kinds() if sum(issubclass(kind, family) for family in families) != 1] == []


@pytest.mark.parametrize("kind", kinds())
def test_an_error_survives_a_pickle(kind: type[SourceError]) -> None:
    error = kind("it happened", hint="do this", slot="s")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert (type(again), str(again), again.facts) == (kind, str(error), {"slot": "s"})
    assert str(error) == f"[{kind.code}] it happened (slot=s). do this"


def test_the_servers_errors_get_our_names() -> None:
    assert type(translate(psycopg.errors.ObjectInUse("in use"))) is SlotBusy
    assert type(translate(psycopg.errors.AdminShutdown("ends"))) is ServerStopping
    assert type(translate(psycopg.OperationalError("no route"))) is ConnectionFault
    assert type(translate(psycopg.errors.ConnectionFailure("gone"))) is ConnectionFault
    assert type(translate(psycopg.errors.InvalidPassword("no"))) is errors.AccessRefused
    assert type(translate(psycopg.errors.DivisionByZero("no"))) is Refusal


def test_nothing_secret_is_printed() -> None:
    for conninfo in (
        "postgresql://user:s3cret@host:5433/db?sslpassword=s3cret&sslmode=require",
        "host=host password='s3cret' dbname=db user=user sslkey=/s3cret port=5433 passfile=s3cret",
    ):
        shown = printable(conninfo)
        assert "s3cret" not in shown
        assert {"host=host", "dbname=db", "user=user", "port=5433"} <= set(shown.split())
    assert "s3cret" not in printable("password=s3cret what is this")
