"""The RustLog door: how fast its frames and its JSON are read, and where a request's time goes.

headrace only; no rival speaks this protocol. A request produces one record of 100 B. Parse (frame and JSON) and
serialise are timed alone, in this process; the rest of what the broker spends on a request is logic and I/O.
"""

import base64
import json
import struct
import time
from collections.abc import Callable
from typing import Final

import msgspec

from headrace.bench.case import Case, CpuMeter, Workload, settle
from headrace.bench.load.jobs import RustLogRequestsJob
from headrace.bench.load.process import run_load
from headrace.bench.rivals import Broker
from headrace.bench.scale import Scale
from headrace.bench.topics import create_topics, delete_topics, fresh_name
from headrace.bench.workloads.latency import latency_of
from headrace.wire.rustlog.codec import decode_request, encode, frame_reader
from headrace.wire.rustlog.messages import ProduceResponse

_PARTITIONS: Final = 4
_CONNECTIONS: Final = 50
_RECORD_BYTES: Final = 100
_FRAMES_PER_READ: Final = 100
_REPETITIONS: Final = 20_000


def _cases(_: Scale) -> list[Case]:
    return [Case(workload="rustlog", name="produce 1 x 100 B", measure=_measure, door="rustlog")]


WORKLOAD: Final = Workload(
    name="rustlog",
    title="The RustLog door",
    question="How fast are frames and JSON read, and where does the time of a request go?",
    cases=_cases,
)


def _measure(broker: Broker, scale: Scale) -> dict[str, float]:
    topic = fresh_name("rustlog")
    create_topics(broker.bootstrap, [topic], partitions=_PARTITIONS)
    try:
        settle(broker)
        job = RustLogRequestsJob(
            bootstrap=broker.address_of("rustlog"),
            topic=topic,
            partitions=_PARTITIONS,
            connections=_CONNECTIONS,
            record_bytes=_RECORD_BYTES,
            warm_up_seconds=scale.warm_up_seconds,
            seconds=scale.request_seconds,
        )
        meter = CpuMeter(broker)
        (outcome,) = run_load([job], on_begin=meter.begin)
        request_us = meter.seconds_when_quiet() / outcome.count * 1e6
    finally:
        delete_topics(broker.bootstrap, [topic])
    codec = _time_codec()
    return {
        "request_rate": outcome.count / outcome.seconds,
        "request_cpu": request_us,
        "request_p99": latency_of(outcome).p99,
        "frame_rate": 1e6 / codec.frame_us,
        "message_rate": 1e6 / codec.decode_us,
        "parse_cpu": codec.frame_us + codec.decode_us,
        "logic_cpu": request_us - codec.frame_us - codec.decode_us - codec.encode_us,
        "serialise_cpu": codec.encode_us,
    }


class _CodecTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds for one frame, one request decoded, one response encoded."""

    frame_us: float
    decode_us: float
    encode_us: float


def _time_codec() -> _CodecTimes:
    record = base64.b64encode(bytes(_RECORD_BYTES)).decode()
    request = {"type": "Produce", "topic": "orders", "partition": 0, "records": [record]}
    payload = json.dumps(request).encode()
    stream = (struct.pack(">I", len(payload)) + payload) * _FRAMES_PER_READ
    response = ProduceResponse(base_offset=123_456, record_count=1)
    reader = frame_reader()

    def read_frames() -> None:
        reader.receive(stream)
        while reader.next_frame() is not None:
            pass

    return _CodecTimes(
        frame_us=_time(read_frames, _REPETITIONS // _FRAMES_PER_READ) / _FRAMES_PER_READ,
        decode_us=_time(lambda: decode_request(payload), _REPETITIONS),
        encode_us=_time(lambda: encode(response), _REPETITIONS),
    )


def _time(work: Callable[[], object], repetitions: int) -> float:
    """CPU microseconds of one call."""
    began = time.process_time()
    for _ in range(repetitions):
        work()
    return (time.process_time() - began) / repetitions * 1e6
