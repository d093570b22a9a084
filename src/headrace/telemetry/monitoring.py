"""What to watch: panels of the Grafana dashboard and alert rules, as a table. `make gen` writes both files from it.

Every expression may only name metrics that a node shows; a test asks one.
"""

from typing import Any, Final, Literal

import msgspec

Json = dict[str, Any]  # Any: JSON


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    unit: str
    """Grafana's name for it."""
    lines: tuple[tuple[str, str], ...]
    """Expressions with their legends."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    expression: str
    lasts: str
    severity: Literal["page", "ticket"]
    sentence: str
    """What is wrong."""
    way_on: str
    """What to do about it."""


PANELS: Final = (
    Panel(title="Throughput", unit="Bps", lines=(
        ("sum(rate(headrace_appended_bytes_total[1m]))", "produced"),
        ("sum(rate(headrace_fetched_bytes_total[1m]))", "consumed"))),
    Panel(title="Records", unit="ops", lines=(
        ("sum(rate(headrace_appended_records_total[1m]))", "produced"),
        ("sum(rate(headrace_fetched_records_total[1m]))", "consumed"))),
    Panel(title="Exposed: on this disk only", unit="bytes", lines=(("sum(headrace_exposure_bytes)", "exposed"),)),
    Panel(title="Oldest exposed record", unit="ms", lines=(("max(headrace_exposure_ms)", "age"),)),
    Panel(title="Lag by group", unit="short", lines=(
        ("topk(10, sum by (group) (headrace_group_lag_records))", "{{group}}"),)),
    Panel(title="Requests to the object store", unit="ops", lines=(
        ("sum by (operation) (rate(headrace_object_store_requests_total[5m]))", "{{operation}}"),)),
    Panel(title="Failures of the object store", unit="ops", lines=(
        ("sum by (operation) (rate(headrace_object_store_failures_total[5m]))", "{{operation}}"),)),
    Panel(title="Upload to commit, 99th percentile", unit="ms", lines=(
        ("histogram_quantile(0.99, sum by (le) (rate(headrace_tier_commit_ms_bucket[5m])))", "p99"),)),
    Panel(title="Read cache", unit="percentunit", lines=(
        ("sum(rate(headrace_tier_cache_hits_total[5m])) / (sum(rate(headrace_tier_cache_hits_total[5m])) "
         "+ sum(rate(headrace_tier_cache_misses_total[5m])))", "hits"),)),
    Panel(title="Connections", unit="short", lines=(("sum(headrace_kafka_connections)", "kafka"),)),
    Panel(title="Pipelines: records waiting", unit="short", lines=(
        ("sum by (pipeline) (headrace_pipeline_lag_records)", "{{pipeline}}"),)),
    Panel(title="Memory and CPU", unit="short", lines=(
        ("process_resident_memory_bytes", "resident bytes"), ("rate(process_cpu_seconds_total[1m])", "cores"))),
)  # fmt: skip

ALERTS: Final = (
    Alert(name="HeadraceDown", expression='up{job="headrace"} == 0', lasts="1m", severity="page",
          sentence="A node does not answer.", way_on="Look at its log and at /health."),
    Alert(name="HeadraceObjectStoreDown", expression="headrace_object_store_circuit_open == 1", lasts="5m", severity="page",
          sentence="The object store is down: records stay on this disk.", way_on="Producers pause once the WAL is full."),
    Alert(name="HeadraceExposed", expression="max(headrace_exposure_ms) > 300000", lasts="5m", severity="page",
          sentence="Records have been on one disk only for more than five minutes.", way_on="Look at /health for uploads that do not get on."),
    Alert(name="HeadraceDamage", expression="headrace_tier_damaged_ranges > 0", lasts="0m", severity="page",
          sentence="Some records in the bucket cannot be read.", way_on="docs/operating/copies-and-damage.md says what can be done."),
    Alert(name="HeadraceManifestsPending", expression="headrace_tier_manifests_pending > 100", lasts="10m", severity="ticket",
          sentence="The bucket's inventory falls behind: readers without a broker see less.", way_on="The object store is slow or refuses writes."),
    Alert(name="HeadraceSpilling", expression="headrace_tier_spill_bytes > 0", lasts="30m", severity="ticket",
          sentence="The ring was too small for what the object store would not take.", way_on="Look at failures of the object store."),
    Alert(name="HeadraceLagGrows",
          expression="sum by (group) (headrace_group_lag_records) > 0 and sum by (group) (deriv(headrace_group_lag_records[15m])) > 0",
          lasts="30m", severity="ticket", sentence="A group falls further behind.", way_on="Its consumers are too few, too slow or gone."),
    Alert(name="HeadracePipelineDown", expression="headrace_pipeline_up == 0", lasts="5m", severity="ticket",
          sentence="A pipeline does not run.", way_on="`headrace pipeline status` has its error."),
)  # fmt: skip


def dashboard() -> Json:
    """Grafana's JSON, with a variable for the data source."""
    return {
        "title": "headrace",
        "uid": "headrace",
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "tags": ["headrace"],
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"}]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel) -> Json:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend, "datasource": source}
            for place, (expression, legend) in enumerate(panel.lines)
        ],
    }


def alert_rules() -> Json:
    """A rule file of Prometheus."""
    return {
        "groups": [
            {
                "name": "headrace",
                "rules": [
                    {
                        "alert": alert.name,
                        "expr": alert.expression,
                        "for": alert.lasts,
                        "labels": {"severity": alert.severity},
                        "annotations": {"summary": alert.sentence, "description": alert.way_on},
                    }
                    for alert in ALERTS
                ],
            }
        ]
    }


def expressions() -> list[str]:
    return [expression for panel in PANELS for expression, _ in panel.lines] + [alert.expression for alert in ALERTS]
