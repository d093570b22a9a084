"""The same requests to Apache Kafka and to headrace: the answers are the same, field by field, but for a known list."""

from pathlib import Path

import pytest
from tests.support.comparison import differences, run_script
from tests.support.node import running_node

from headrace.bench.errors import RivalUnavailable
from headrace.bench.rivals import ApacheKafka

pytestmark = pytest.mark.long

KNOWN = {
    # Kafka keeps the default of retention.ms in hours, under another name, and then lists no synonym for it.
    "synonyms: ours [{'name': 'log.retention.ms', 'value': '604800000', 'source': 5}"
}
"""What differs on purpose: docs/protocols/kafka.md says why."""


def test_answers_are_those_of_apache_kafka(tmp_path: Path) -> None:
    try:
        kafka = ApacheKafka().launch(tmp_path / "kafka")
    except RivalUnavailable as error:
        pytest.skip(f"Apache Kafka cannot be run here: {error}")
    try:
        theirs = run_script(kafka.bootstrap)
    finally:
        kafka.stop()
    with running_node(tmp_path / "data") as node:
        ours = run_script(node.kafka)
    assert len(ours) > 100
    unknown = [each for each in differences(ours, theirs) if not any(known in each for known in KNOWN)]
    assert unknown == [], "\n".join(unknown)
