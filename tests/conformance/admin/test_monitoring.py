"""The dashboard and the alerts name only what a node shows."""

import json
import re
from pathlib import Path

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.support.node import NodeProcess

from headrace.telemetry.monitoring import expressions

ROOT = Path(__file__).resolve().parents[3]
WORDS = re.compile(r"\b((?:headrace|process)_\w+)")


def test_every_expression_names_a_metric_that_a_node_shows(node: NodeProcess) -> None:
    text = httpx.get(f"http://{node.endpoints['admin']}/metrics", timeout=60).text
    families = list(text_string_to_metric_families(text))
    shown = {sample.name for family in families for sample in family.samples}
    # A metric without a sample now, of groups or pipelines for one, is declared all the same.
    shown |= {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    shown |= {family.name + "_total" for family in families if family.type == "counter"}
    wanted = {word for expression in expressions() for word in WORDS.findall(expression)}
    assert wanted
    assert wanted <= shown


def test_names_begin_with_one_prefix_beside_the_seeds_own(node: NodeProcess) -> None:
    text = httpx.get(f"http://{node.endpoints['admin']}/metrics", timeout=60).text
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    others = {name for name in names if not name.startswith(("headrace_", "process_", "python_", "rustlog_"))}
    assert others <= {
        "messages_produced_total",
        "bytes_in_total",
        "messages_fetched_total",
        "bytes_out_total",
        "consumer_lag",
    }


def test_the_files_can_be_read_by_those_they_are_for() -> None:
    rules = yaml.safe_load((ROOT / "docs" / "monitoring" / "alerts.yml").read_text())["groups"][0]["rules"]
    assert all(rule["annotations"]["description"] for rule in rules)
    panels = json.loads((ROOT / "docs" / "monitoring" / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for expression in expressions():
        assert expression.count("(") == expression.count(")")
