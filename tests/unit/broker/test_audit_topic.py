"""Events of the audit on their way into its topic."""

import json
from pathlib import Path

import pytest
from tests.support.kafka_door import opened_door

from headrace.broker.access.audit import AUDIT_TOPIC, Audit
from headrace.broker.access.words import Principal
from headrace.broker.audit_topic import AuditTopic
from headrace.broker.forwarding import Forwarding
from headrace.errors import Overloaded
from headrace.records.batch import iterate_batches
from headrace.records.record import read_batch_records


async def test_events_are_kept_in_the_order_they_were_noted(tmp_path: Path) -> None:
    async with opened_door(tmp_path) as door:
        broker = door.door.broker
        audit = Audit(door.clock, "/headrace/b1")
        keeping = AuditTopic(audit, broker.topics, Forwarding(broker.topics, broker.produce, broker.offsets))
        await keeping.keep()
        assert broker.topics.find(AUDIT_TOPIC) is None
        for nth in range(3):
            audit.changed(Principal("root"), "", {"nth": nth})
        await keeping.keep()
        topic = broker.topics.get(AUDIT_TOPIC)
        assert topic.is_internal
        partition = topic.partitions[0]
        kept = [
            json.loads(record.value or b"")["data"]["nth"]
            for piece in partition.read_tail(0, 1 << 20, partition.end_offset, at_least_one=True).slices
            for header, batch in iterate_batches(piece)
            for record in read_batch_records(batch, header)
        ]
        assert kept == [0, 1, 2]


async def test_what_cannot_be_kept_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened_door(tmp_path) as door:
        broker = door.door.broker
        audit = Audit(door.clock, "/headrace/b1")
        keeping = AuditTopic(audit, broker.topics, Forwarding(broker.topics, broker.produce, broker.offsets))

        def is_full(*_: object) -> None:
            raise Overloaded("the log is full")

        with monkeypatch.context() as patched:
            patched.setattr(broker.produce, "append_internal", is_full)
            audit.changed(None, "", {"change": "rule added"})
            await keeping.keep()
        audit.changed(None, "", {"change": "rule deleted"})
        assert json.loads(audit.take()[0])["data"]["skipped"] == 1
        assert audit.skipped_total == 1
