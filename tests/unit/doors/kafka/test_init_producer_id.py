"""InitProducerId while the node cannot give out ids: the client is told to come back, by an answer."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.metastores import ManualClock

from headrace.broker.producer_ids import ProducerIds
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.embedded import EmbeddedMetastore
from headrace.doors.kafka.handlers import init_producer_id
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest


class Transactions:
    """As far as this request gets: a transactional producer needs an id, too."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def init(self, transactional_id: str, *, timeout_ms: int, expected: object) -> int:
        return await self._producer_ids.take()


@pytest.mark.parametrize("transactional_id", [None, "payments"])
async def test_a_metastore_that_has_failed_is_an_answer_and_no_closed_connection(transactional_id: str | None) -> None:
    store = await EmbeddedMetastore.open()
    cluster = await Cluster.load(store, ManualClock())
    await cluster.register("node", pb.BrokerRegistration())
    producer_ids = ProducerIds(cluster)
    await store.close()
    broker = SimpleNamespace(producer_ids=producer_ids, transactions=Transactions(producer_ids))
    session = cast(Any, SimpleNamespace(broker=broker))  # Any: the rest of a session is not looked at.
    answer = await init_producer_id.handle(InitProducerIdRequest(transactional_id, 60_000), 4, session)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
