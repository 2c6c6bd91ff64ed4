"""`shapelog materialize --master` on a standalone cluster of this machine: a master, two workers, a driver.

Any of these processes is killed, and their executors and Python workers, while it works; nothing is lost or done twice.
What they make is compared with what one process makes without Spark, file by file; so is what `local[2]` makes
(`test_lake_on_spark`): a cluster and local mode give the same rows in the same order.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from storage.lake.java import java_home
from tests.lake_equality import check_made_as_by_one
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


@dataclass(frozen=True)
class Cluster:
    """Its address, and the processes that were started for it."""

    address: str
    daemons: list[int]

    def executors(self) -> list[int]:
        """Processes that the workers have started, by what is in their command lines."""
        return [pid for pid in descendants(self.daemons) if "ExecutorBackend" in command_of(pid)]

    def pythons(self) -> list[int]:
        """Python workers: those that a daemon of an executor has forked."""
        forks = [pid for pid in descendants(self.executors()) if "pyspark" in command_of(pid)]
        return [pid for pid in forks if "pyspark" in command_of(parent_of(pid))]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers that have registered themselves."""
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    environment = os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": java_home(os.environ, folder / "cache"),
    }
    address = f"spark://127.0.0.1:{port}"
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["worker.Worker", "--cores", "1", "--memory", "700m", "--webui-port", "0", "--work-dir", str(folder / "w")]
    with ExitStack() as stack:
        logs, daemons = [folder / f"daemon{number}.log" for number in range(3)], []
        for log, arguments in zip(logs, (master, [*worker, address], [*worker, address]), strict=True):
            out = stack.enter_context(log.open("w"))
            command = [str(HOME / "bin/spark-class"), *arguments]
            command[1] = "org.apache.spark.deploy." + command[1]
            daemon = stack.enter_context(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            stack.callback(daemon.kill)
            daemons.append(daemon.pid)
            if log == logs[0]:
                until(lambda: "I have been elected leader" in logs[0].read_text(), "the master", START_SECONDS)
        until(
            lambda: len(re.findall("Registering worker", logs[0].read_text())) == 2,
            "two registered workers",
            START_SECONDS,
        )
        made = Cluster(address, daemons)
        try:
            yield made
        finally:
            for pid in made.executors():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def materializer(cluster: Cluster, lakes: Lakes, *more: str) -> Iterator[subprocess.Popen[str]]:
    settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
    command = [sys.executable, "-m", "cdc.cli", "materialize", "--data-dir", str(lakes.data), "--lake", str(lakes.root)]
    with subprocess.Popen(
        [*command, *more, "--json", "--master", cluster.address, *settings],
        cwd=ROOT,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def is_at(lakes: Lakes, lsn: int) -> bool:
    return bool((lakes.root / "versions").exists() and lakes.lake().numbers() and lakes.latest().lsn >= lsn)


@pytest.mark.timeout(300)
def test_a_cluster_makes_the_same_tables(cluster: Cluster, tmp_path: Path) -> None:
    lakes = Lakes(tmp_path)
    lakes.bank.play(40)
    lsn = lakes.bank.confirm()
    with materializer(cluster, lakes, "--once") as started:
        out, err = started.communicate(timeout=240)
    assert started.returncode == 0, err
    told = json.loads(out.splitlines()[-1])
    assert (told["version"], told["lsn"]) == (1, lsn)
    lakes.check_all()
    check_made_as_by_one(lakes, tmp_path / "alone")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("seed", "workers"), [(1, 2), pytest.param(2, 8, marks=pytest.mark.nemesis)])
def test_whatever_is_killed_in_mid_work(cluster: Cluster, tmp_path: Path, seed: int, workers: int) -> None:
    """Workers die and Spark goes on; its driver dies, or the program, and the next one goes on."""
    lakes, chance = Lakes(tmp_path, seed), random.Random(seed)
    lakes.bank.play(20)
    lsn = lakes.bank.confirm()
    port = str(free_port())
    with materializer(cluster, lakes, "--every", "0.1", "--metrics-port", port) as first:
        until(lambda: is_at(lakes, lsn), "the first version", START_SECONDS)
        for number in range(workers):
            victims = (cluster.pythons, cluster.executors)[number % 2]
            victim = chance.choice(until(victims, "somebody to kill", START_SECONDS))
            lsn = killed_in_mid_work(lakes, victim)
            until(lambda lsn=lsn: is_at(lakes, lsn), f"the lake to be at {lsn}", START_SECONDS)  # type: ignore[misc]  # a lambda's default
        until(lambda: f"shapelog_lake_level_lsn {float(lsn)}" in scraped(port), "the same in its metrics")
        java = next(pid for pid in descendants([first.pid]) if "SparkSubmit" in command_of(pid))
        lsn = killed_in_mid_work(lakes, java)
        _, err = first.communicate(timeout=START_SECONDS)
        assert (first.returncode, "[spark_gone]" in err) == (2, True), err
    with materializer(cluster, lakes, "--every", "0.1") as second:
        until(lambda: is_at(lakes, lsn), "the version whose maker died", START_SECONDS)
        lsn = killed_in_mid_work(lakes, second.pid)
    with materializer(cluster, lakes, "--once") as third:
        _, err = third.communicate(timeout=START_SECONDS)
    assert third.returncode == 0, err
    assert is_at(lakes, lsn)
    lakes.check_all()
    numbers = lakes.lake().numbers()
    assert numbers == [*range(1, len(numbers) + 1)]
    check_made_as_by_one(lakes, tmp_path / "alone")


def killed_in_mid_work(lakes: Lakes, pid: int) -> int:
    """Stand still, so that what it is given to do is begun and not done; then die."""
    known = len(list((lakes.root / "cuts").glob("*.json")))
    is_worker = "pyspark" in command_of(pid) or "Backend" in command_of(pid)
    if is_worker:
        os.kill(pid, signal.SIGSTOP)
    lakes.bank.play(20)
    lsn = lakes.bank.confirm()
    until(lambda: len(list((lakes.root / "cuts").glob("*.json"))) > known, "a cut to be decided", START_SECONDS)
    os.kill(pid, signal.SIGKILL)
    return lsn


def scraped(port: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=START_SECONDS) as answer:
        return str(answer.read().decode())


def descendants(roots: list[int]) -> list[int]:
    """Processes that these have started, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            children.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    found = [*roots]
    for pid in found:
        found += children.get(pid, [])
    return found[len(roots) :]


def parent_of(pid: int) -> int:
    """0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
