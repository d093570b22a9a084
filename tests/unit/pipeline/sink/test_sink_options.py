import pytest

from headrace.pipeline.sink.options import parse_sink_options
from headrace.pipeline.source.errors import InvalidOption

GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "topic": "out", "applicationId": "copy"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"aplicationId": "x"}, "unknown option aplicationid; did you mean applicationid"),
        ({"kafka.acks": "0"}, "kafka.acks: the sink sets up its producer itself"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol"),
        ({"batchBytesMax": "0"}, "at least 1"),
        ({"batchBytesMax": "-1"}, "at least 1"),
        ({"kafka.sasl.password": "x"}, "would put a secret"),
    ],
)
def test_options_that_would_do_nothing_are_refused(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        parse_sink_options(GIVEN | changes, is_stream=True)


def test_what_spark_adds_by_itself_is_passed_over() -> None:
    options = parse_sink_options(
        GIVEN | {"checkpointLocation": "/c", "path": "", "includeHeaders": "true"}, is_stream=True
    )
    assert (options.topic, options.marker_topic, options.application_id) == ("out", "out", "copy")
