"""Somebody's own job on a standalone cluster: executors of other processes read a log, with the storage in common."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lakes import Lakes
from tests.spark.test_lake_on_a_cluster import SETTINGS, Cluster, cluster
from tests.tree import ROOT

__all__ = ["cluster"]  # a fixture, which is found by its name

JOB = """
import json, os, sys
from pyspark.sql import SparkSession
from storage.lake.source import register

builder = SparkSession.builder.master(sys.argv[1])
for name, value in json.loads(sys.argv[2]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
register(spark)
source = spark.read.format("shapelog").option("data", "data").option("shape", "savings")
rows = source.load().where("_tx > 0").select("_tx", "_op", "_kind").toArrow()
places = spark.sparkContext.parallelize([0, 1], 2).map(lambda _: os.getcwd()).collect()
print(json.dumps({"rows": sorted(map(list, zip(*rows.to_pydict().values()))), "elsewhere": os.getcwd() not in places}))
"""
"""It names the folder from where its driver stands."""


@pytest.mark.timeout(300)
def test_a_job_reads_a_log_on_other_processes(cluster: Cluster, tmp_path: Path) -> None:
    lakes = Lakes(tmp_path, accounts=10)
    lakes.bank.play(40)
    lsn = lakes.bank.confirm()
    lakes.bank.play(5)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    done = subprocess.run(
        [sys.executable, job, cluster.address, json.dumps(SETTINGS)],
        cwd=tmp_path,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["rows"] == [[*change] for change in lakes.bank.changes["savings"] if change[0] < lsn]
    assert told["elsewhere"], "the executors stand in folders of their own"
