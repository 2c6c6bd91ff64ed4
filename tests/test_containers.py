"""The files under `docker/`: as much of them as can be checked without an engine.

Linters know the formats; what no linter knows is whether a metric, a variable or a command that a file names exists.
"""

import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.tree import ROOT

DOCKER = ROOT / "docker"
SUFFIXES = ("_bucket", "_count", "_sum")  # of a histogram, which has one name in our documents


def yaml_files() -> list[Path]:
    return sorted(path for path in DOCKER.rglob("*") if path.suffix in {".yml", ".yaml"})


def lint(*command: str) -> None:
    """Run a linter of this environment; what it says is the message."""
    program = Path(sys.executable).parent / command[0]
    found = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_image_passes_its_linter() -> None:
    lint("hadolint", "--failure-threshold", "info", str(DOCKER / "Dockerfile"))


def test_the_manifests_are_what_kubernetes_takes() -> None:
    lint("kubernetes-validate", "--strict", str(DOCKER / "kubernetes.yaml"))


@pytest.mark.parametrize("path", yaml_files(), ids=lambda path: str(path.relative_to(DOCKER)))
def test_every_yaml_file_can_be_read(path: Path) -> None:
    assert all(yaml.safe_load_all(path.read_text("utf-8")))


def test_the_image_has_every_package_and_nothing_that_is_not_there() -> None:
    copied = set(re.findall(r"^COPY (?!--from)(.+) \S+$", (DOCKER / "Dockerfile").read_text("utf-8"), re.MULTILINE))
    names = {name for line in copied for name in line.split()}
    assert not [name for name in names if not (ROOT / name).exists()]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= names
    allowed = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE))
    assert allowed == names


def dashboards() -> Iterator[str]:
    """What panels ask for."""
    for path in DOCKER.rglob("*.json"):
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            yield from (target["expr"] for target in panel.get("targets", ()))


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DOCKER / "prometheus/alerts.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_metrics_of_dashboards_and_alerts_exist() -> None:
    known = set(re.findall(r"^\| `(shapelog_\w+)`", (ROOT / "docs/metrics.md").read_text("utf-8"), re.MULTILINE))
    asked = {name for text in [*dashboards(), *(rule["expr"] for rule in rules())] for name in metrics_of(text)}
    assert len(asked) > 20, "is this still how files name metrics?"
    assert not asked - known


def metrics_of(expression: str) -> set[str]:
    without_labels = re.sub(r"\{[^}]*\}", "", expression)
    found = re.findall(r"\bshapelog_\w+", without_labels)
    return {re.sub(f"({'|'.join(SUFFIXES)})$", "", name) for name in found}


def test_every_alert_says_what_to_do_first() -> None:
    runbook = (ROOT / "docs/runbook.md").read_text("utf-8")
    led = set(re.findall(r"`(Shapelog\w+)`", runbook))
    assert led == {rule["alert"] for rule in rules()}, "the table on top of docs/runbook.md leads from every alert"
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "warn"}, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["labels"]["severity"] == "warn" or rule["annotations"]["description"], rule["alert"]


MINUTES = 120
FIRING = [
    ({'shapelog_wal_budget_used_ratio{job="shapelog"}': 0.4}, set()),
    ({'shapelog_wal_budget_used_ratio{job="shapelog"}': 0.6}, {"ShapelogWalBudget"}),
    ({'shapelog_insurance_step{step="calm"}': 0, 'shapelog_insurance_step{step="alert"}': 1}, {"ShapelogWalBudget"}),
    (
        {'shapelog_insurance_step{step="calm"}': 0, 'shapelog_insurance_step{step="end"}': 1},
        {"ShapelogWalBudget", "ShapelogInsuranceActs"},
    ),
    ({"shapelog_slot_found": 1, "shapelog_wal_budget_bytes": 4e9}, set()),
    ({"shapelog_slot_found": 1}, {"ShapelogWithoutWalBudget"}),
    ({'shapelog_folds_failed_total{code="cannot_fold"}': (0, 1)}, {"ShapelogCannotFold"}),
    (
        {'shapelog_flushed_held{by="rows"}': 1, "shapelog_flushed_lag_bytes": 9, "shapelog_flushed_lsn": 7},
        {"ShapelogStandsStill"},
    ),
    ({'shapelog_flushed_held{by="rows"}': 1, "shapelog_flushed_lag_bytes": 9, "shapelog_flushed_lsn": (7, 1)}, set()),
    ({'up{job="shapelog"}': 0}, {"ShapelogDown"}),
]
"""Series, with what each minute adds if there is a pair, and who is alerted after two hours."""


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here: apt install prometheus")
@pytest.mark.parametrize(("series", "alerted"), FIRING, ids=lambda one: "-".join(sorted(one))[:60])
def test_alerts_fire_when_they_should(series: dict[str, Any], alerted: set[str], tmp_path: Path) -> None:
    """By Prometheus' own rules, in its own time."""
    given = []
    for name, value in series.items():
        start, step = value if isinstance(value, tuple) else (value, 0)
        given.append({"series": name, "values": f"{start}+{step}x{MINUTES}"})
    firing = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{MINUTES}m",
        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(alerted)],
    }
    test = {"interval": "1m", "input_series": given, "promql_expr_test": [firing]}
    case = tmp_path / "case.yml"
    case.write_text(json.dumps({"rule_files": [str(DOCKER / "prometheus/alerts.yml")], "tests": [test]}))
    found = subprocess.run(
        ["promtool", "test", "rules", str(case)], capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_variables_of_the_containers_are_those_of_options() -> None:
    program: Any = typer.main.get_command(importlib.import_module("cdc.cli").app)
    known = set(variables(program))
    texts = {path: path.read_text("utf-8") for path in [*yaml_files(), DOCKER / "Dockerfile", DOCKER / ".env.example"]}
    named = {(path.name, name) for path, text in texts.items() for name in re.findall(r"\bSHAPELOG_[A-Z_]+", text)}
    assert len(named) > 5, "is this still how files name variables?"
    assert not {one for one in named if one[1] not in known}


def variables(command: Any) -> Iterator[str]:
    for parameter in command.params:
        names = parameter.envvar or ()
        yield from [names] if isinstance(names, str) else names
    for inner in getattr(command, "commands", {}).values():
        yield from variables(inner)


def test_every_service_is_pinned_and_every_file_it_wants_is_there() -> None:
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))["services"]
    built = {service["image"] for service in services.values() if "build" in service}
    for name, service in services.items():
        image, _, tag = service["image"].partition(":")
        assert image in built or re.match(r"v?\d+\.\d+", tag), f"{name}: {service['image']} has no version"
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (DOCKER / source).exists(), f"{name}: {source} is not there"
