"""`shapelog materialize --master` on a standalone cluster of this machine: a master, two workers, a driver."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from storage.lake.java import java_home
from tests.lakes import Lakes
from tests.postgres import free_port
from tests.tree import ROOT
from tests.waiting import until

HOME = Path(pyspark.__file__).parent
START_SECONDS = 90.0
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.ui.enabled": "false",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The master's address, once both workers are registered."""
    port = free_port()
    environment = os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    if home := java_home(os.environ, tmp_path / "cache"):
        environment["JAVA_HOME"] = home
    address = f"spark://127.0.0.1:{port}"
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [
        "worker.Worker",
        "--cores",
        "1",
        "--memory",
        "700m",
        "--webui-port",
        "0",
        "--work-dir",
        str(tmp_path / "w"),
    ]
    with ExitStack() as stack:
        logs = [tmp_path / f"daemon{number}.log" for number in range(3)]
        for log, arguments in zip(logs, (master, [*worker, address], [*worker, address]), strict=True):
            out = stack.enter_context(log.open("w"))
            command = [str(HOME / "bin/spark-class"), *arguments]
            command[1] = "org.apache.spark.deploy." + command[1]
            daemon = stack.enter_context(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            stack.callback(daemon.kill)
            if log == logs[0]:
                until(lambda: "I have been elected leader" in logs[0].read_text(), "the master", START_SECONDS)
        until(
            lambda: len(re.findall("Registering worker", logs[0].read_text())) == 2,
            "two registered workers",
            START_SECONDS,
        )
        yield address


@pytest.mark.timeout(300)
def test_a_cluster_makes_the_same_tables(cluster: str, tmp_path: Path) -> None:
    lakes = Lakes(tmp_path)
    lakes.bank.play(40)
    lsn = lakes.bank.confirm()
    settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
    command = [sys.executable, "-m", "cdc.cli", "materialize", "--data-dir", str(lakes.data), "--lake", str(lakes.root)]
    done = subprocess.run(
        [*command, "--once", "--json", "--master", cluster, *settings],
        cwd=ROOT,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["version"], told["lsn"]) == (1, lsn)
    lakes.check_all()
