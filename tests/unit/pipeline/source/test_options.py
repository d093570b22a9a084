import pickle
from pathlib import Path

import pytest

from headrace.pipeline.decoder import Isolation
from headrace.pipeline.sink.options import parse_sink_options
from headrace.pipeline.source.errors import InvalidOption
from headrace.pipeline.source.offsets import EARLIEST, LATEST, TopicPartition
from headrace.pipeline.source.options import MissingTime, SourceOptions, parse_options

PLACE = {"bucket": "/data/objects", "subscribe": "orders"}


def parse(*, is_stream: bool = False, **options: str) -> SourceOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return parse_options({**PLACE, **given}, is_stream=is_stream)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    batch, stream = parse(), parse(is_stream=True)
    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert stream.starting.everywhere == LATEST
    assert batch.is_loss_fatal
    assert not batch.has_headers
    assert batch.isolation is Isolation.READ_UNCOMMITTED


def test_names_are_case_insensitive_and_kafkas_own_are_let_through() -> None:
    options = parse(FAILONDATALOSS="false", kafka__isolation__level="read_committed", kafka__fetch__max__bytes="1")
    assert not options.is_loss_fatal
    assert options.isolation is Isolation.READ_COMMITTED


def test_brokers_are_host_and_port() -> None:
    assert parse(kafka__bootstrap__servers="a:1, [::1]:2").brokers == (("a", 1), ("::1", 2))
    with pytest.raises(InvalidOption, match="not host:port"):
        parse(kafka__bootstrap__servers="a")


def test_subscriptions_by_name_pattern_and_assignment() -> None:
    by_name = parse(subscribe="a, b").subscription
    assert by_name.names == ("a", "b")
    by_pattern = parse(subscribe="", subscribePattern="ord.*").subscription
    assert by_pattern.matches("orders")
    assert not by_pattern.matches("my-orders")
    assert not by_pattern.matches("ord_internal", is_internal=True)
    assigned = parse(subscribe="", assign='{"a": [0, 2]}').subscription
    assert [assigned.takes("a", partition) for partition in range(3)] == [True, False, True]


def test_offsets_times_and_their_precedence() -> None:
    by_offset = parse(startingOffsets='{"orders": {"0": 5, "1": -2}}').starting
    assert by_offset.offsets == {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): EARLIEST}
    both = parse(startingOffsets="earliest", startingTimestamp="17", startingOffsetsByTimestampStrategy="latest")
    assert both.starting.timestamp_ms == 17
    assert both.starting.missing_time is MissingTime.START_AT_LATEST
    each = parse(endingOffsetsByTimestamp='{"orders": {"0": 9}}').ending
    assert each.timestamps_ms == {TopicPartition("orders", 0): 9}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribePattern", "x"),
        ("startingOffsets", "soon"),
        ("startingOffsets", '{"orders": 5}'),
        ("startingOffsets", '{"orders": {"zero": 5}}'),
        ("endingOffsets", "earliest"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "many"),
        ("failOnDataLoss", "maybe"),
        ("isolation.level", "dirty"),
        ("startingOfsets", "earliest"),
        ("startingOffsetsByTimestampStrategy", "guess"),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidOption):
        parse_options({**PLACE, name: value}, is_stream=False)


def test_a_slip_is_told_what_was_meant() -> None:
    with pytest.raises(InvalidOption, match=r"unknown option startingofsets; did you mean startingoffsets\?"):
        parse(startingOfsets="earliest")
    with pytest.raises(
        InvalidOption, match=r"startingoffsets: expected earliest, latest or JSON such as .*, not 'soon'"
    ):
        parse(startingOffsets="soon")
    with pytest.raises(InvalidOption, match="startingoffsetsbytimestamp: expected JSON such as"):
        parse(startingOffsetsByTimestamp="noon")


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidOption, match="no meaning in a stream"):
        parse(is_stream=True, endingOffsets="latest")


def test_there_must_be_somewhere_to_read_from() -> None:
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers, bucket"):
        parse_options({"subscribe": "orders"}, is_stream=False)


@pytest.mark.parametrize("name", ["aws_secret_access_key", "kafka.sasl.jaas.config", "bucket.accessKey", "password"])
def test_secrets_are_refused_as_options(name: str) -> None:
    with pytest.raises(InvalidOption, match="environment") as caught:
        parse_options({**PLACE, name: "hunter2"}, is_stream=False)
    assert "hunter2" not in str(caught.value)


SECURE = {
    "kafka.bootstrap.servers": "a:1",
    "subscribe": "t",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": "/ca.pem",
}


def test_options_say_how_to_be_let_in_and_the_file_has_the_secrets(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=PLAINTEXT\n"
        'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="hunter\\"2";\n'
    )
    given = {**SECURE, "kafka.client.config": str(file)}
    for security in (
        parse_options(given, is_stream=False).security,
        parse_sink_options(
            {**{name: each for name, each in given.items() if name != "subscribe"}, "topic": "t"}, is_stream=False
        ).security,
    ):
        assert b"hunter" not in pickle.dumps(security)
        said = security.read()
        assert (said.protocol, said.mechanism, said.user, said.password) == (
            "SASL_SSL",
            "SCRAM-SHA-512",
            "alice",
            'hunter"2',
        )
        assert said.ca == "/ca.pem"
        assert "hunter" not in f"{said!r} {said} {security!r}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.security.protocol", "SASL"),
        ("kafka.ssl.truststore.type", "JKS"),
        ("kafka.ssl.keystore.location", "/keys.jks"),
    ],
)
def test_what_cannot_be_done_is_refused_rather_than_passed_over(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=r"kafka\.s"):
        parse_options({**SECURE, name: value}, is_stream=False)


def test_plaintext_may_be_said() -> None:
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.security.protocol": "PLAINTEXT"}
    assert parse_options(options, is_stream=False).brokers == (("a", 1),)


def test_a_batch_may_wait_for_company_as_in_sparks_kafka_source() -> None:
    given = {"bucket": "b", "subscribe": "t"}
    assert parse_options(given, is_stream=True).trigger_delay_ms_max == 15 * 60_000
    waiting = parse_options(given | {"minOffsetsPerTrigger": "100", "maxTriggerDelay": "90s"}, is_stream=True)
    assert (waiting.offsets_per_trigger_min, waiting.trigger_delay_ms_max) == (100, 90_000)
    for text, complaint in (("soon", "15m or 90s"), ("-1s", "15m or 90s")):
        with pytest.raises(InvalidOption, match=complaint):
            parse_options(given | {"maxTriggerDelay": text}, is_stream=True)
    with pytest.raises(InvalidOption, match="minOffsetsPerTrigger 5 is more than maxOffsetsPerTrigger 4"):
        parse_options(given | {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, is_stream=True)
