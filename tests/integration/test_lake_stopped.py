"""Spark's process ends before we do: killed, which is told in a line; or ended with us, as services are stopped."""

import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from py4j.java_gateway import GatewayClient  # type: ignore[import-untyped]  # it ships none
from py4j.protocol import ERROR  # type: ignore[import-untyped]  # as above
from pyspark.accumulators import AccumulatorTCPServer, UpdateRequestHandler

from storage.errors import StorageError
from storage.lake.errors import SparkGone, TaskFailed
from storage.lake.materialize import Order, materialize
from storage.lake.spark import hush
from storage.lake.tasks import Done
from tests.lakes import Lakes
from tests.tree import ROOT
from tests.waiting import until

WORD = "let me in"


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    lakes = Lakes(tmp_path, accounts=5)
    lakes.bank.confirm()
    return lakes


def test_connections_that_end_with_spark_say_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """One way it tells how far it is, the other way it is asked: whoever finds it gone would print a traceback."""
    with AccumulatorTCPServer(("127.0.0.1", 0), UpdateRequestHandler, WORD) as server:
        hush(server)
        with socket.create_connection(("127.0.0.1", server.server_address[1])) as connection:
            connection.sendall(WORD.encode() + bytes(4))  # it is let in, and tells of no counts yet
        server.handle_request()
    with socket.create_server(("127.0.0.1", 0)) as spark:
        client = GatewayClient(port=spark.getsockname()[1])
        client._give_back_connection(client._get_connection())
        spark.accept()[0].close()
        assert client.send_command("x\n", retry=False) == ERROR
    assert (capfd.readouterr().err, caplog.text) == ("", "")
    logging.getLogger().warning("heard")
    assert "heard" in caplog.text, "others are heard"


@pytest.mark.parametrize("error", [SparkGone, TaskFailed])
def test_who_is_stopped_with_spark_ends_in_good_order(
    lakes: Lakes, caplog: pytest.LogCaptureFixture, error: type[StorageError]
) -> None:
    """A service's processes are all told to end at once, and Spark's is faster: the work is gone, and no fault."""
    order = Order(lakes.data, lakes.root, every_seconds=0.1)

    def stopped(_: object) -> list[Done]:
        order.stop.set()
        raise error("it is gone")

    with caplog.at_level(logging.WARNING):
        materialize(order, stopped, lambda _: None)
    assert not caplog.messages
    lakes.writer().step()
    lakes.check_all()


def test_who_is_not_stopped_says_that_spark_is_gone(lakes: Lakes) -> None:
    def gone(_: object) -> list[Done]:
        raise SparkGone("it is gone")

    with pytest.raises(SparkGone):
        materialize(Order(lakes.data, lakes.root, every_seconds=0.1), gone, lambda _: None)


def test_stopped_with_spark_while_it_starts(lakes: Lakes, tmp_path: Path) -> None:
    """It takes seconds: a Java that says what it is, and then takes for ever."""
    java, begun = tmp_path / "home" / "bin" / "java", tmp_path / "begun"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!/bin/sh\n[ $1 = -version ] && echo 'openjdk version \"21\"' >&2 && exit\ntouch {begun}\nexec sleep 600\n"
    )
    java.chmod(0o755)
    folders = ["--data-dir", str(lakes.data), "--lake", str(lakes.root)]
    with subprocess.Popen(
        [sys.executable, "-m", "cdc.cli", "materialize", *folders, "--every", "1"],
        env=os.environ | {"JAVA_HOME": str(java.parent.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    ) as process:
        until(begun.exists, "Spark's process to be started", 30)
        os.killpg(process.pid, signal.SIGTERM)
        told = process.communicate(timeout=30)[0]
    assert (process.returncode, told) == (0, "")
