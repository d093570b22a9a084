"""The API over gRPC says what REST says, call by call, over made-up histories; health, reflection and errors for tools."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc_tools
import httpx
import pytest
from google.protobuf import descriptor_pb2, json_format
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status
from grpc_tools import protoc
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.support.node import NodeProcess

from headrace.admin.api.table import BY_NAME, PREFIX, ROUTES
from headrace.admin.grpc.schema import PACKAGE, SERVICE, Messages, proto_text

MESSAGES = Messages()


class Rpc:
    """A client made from the descriptors alone."""

    def __init__(self, channel: Any) -> None:  # Any: grpc has no types
        self.channel = channel

    def call(self, name: str, /, **fields: Any) -> Any:  # Any: as above
        request, response = MESSAGES.of(f"{name}Request"), MESSAGES.of(f"{name}Response")
        method = self.channel.unary_unary(
            f"/{PACKAGE}.{SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return method(json_format.ParseDict(fields, request()), timeout=60)

    def refusal(self, name: str, /, **fields: Any) -> tuple[str, str]:  # Any: as above
        with pytest.raises(grpc.RpcError) as raised:
            self.call(name, **fields)
        info = error_details_pb2.ErrorInfo()
        assert rpc_status.from_call(raised.value).details[0].Unpack(info)
        return raised.value.code().name, info.reason


@pytest.fixture(scope="module")
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with grpc.insecure_channel(node.endpoints["grpc"]) as channel:
        yield Rpc(channel)


def rest(node: NodeProcess, name: str, /, **fields: Any) -> httpx.Response:  # Any: JSON
    """The same call as REST has it, from the table."""
    route = BY_NAME[name]
    path = route.path
    for each in route.names_in_path:
        path = path.replace(f"{{{each}}}", str(fields.pop(each)))
    query = {"dry_run": "true"} if fields.pop("dry_run", False) else {}
    url = f"http://{node.endpoints['admin']}{PREFIX}{path}"
    if route.has_body:
        return httpx.request(route.method, url, params=query, json=fields, timeout=60)
    return httpx.request(route.method, url, params={**query, **fields}, timeout=60)


def as_message(name: str, answer: httpx.Response) -> Any:  # Any: protobuf's own
    return json_format.ParseDict(answer.json()["data"], MESSAGES.of(f"{name}Response")())


READS = [
    ("DescribeCluster", {}),
    ("ListBrokers", {}),
    ("ListTopics", {"internal": True}),
    ("ListTopics", {"order_by": "records desc", "page_size": 2}),
    ("ListGroups", {}),
    ("ListTransactions", {}),
    ("ListObjects", {}),
    ("ListPipelines", {}),
    ("ListOperations", {}),
]

steps = st.one_of(
    st.tuples(st.just("CreateTopic"), st.fixed_dictionaries({"partitions": st.integers(1, 3)})),
    st.tuples(st.just("GrowTopic"), st.fixed_dictionaries({"count": st.integers(1, 5)})),
    st.tuples(st.just("DeleteTopic"), st.fixed_dictionaries({"dry_run": st.booleans()})),
    st.tuples(
        st.just("UpdateTopicConfig"),
        st.fixed_dictionaries({"set": st.sampled_from([{"retention.ms": "1000"}, {"retention.ms": "soon"}, {}])}),
    ),
    st.tuples(
        st.just("ProduceRecord"),
        st.fixed_dictionaries(
            {"value": st.sampled_from([{"data": ""}, {"data": "tea"}, {"data": "AP8=", "encoding": "base64"}])},
            optional={"partition": st.integers(0, 3), "key": st.just({"data": "k"})},
        ),
    ),
    st.tuples(
        st.just("DeleteRecords"),
        st.fixed_dictionaries({"partition": st.integers(0, 1), "before": st.integers(-1, 3)}),
    ),
    st.tuples(st.just("ReadRecords"), st.fixed_dictionaries({"start": st.just("oldest")})),
    st.tuples(st.just("DescribeTopic"), st.just({})),
    st.tuples(st.just("ListPartitions"), st.just({})),
    st.tuples(st.just("DescribeTopicConfigs"), st.just({})),
    st.tuples(
        st.just("ResetOffset"),
        st.fixed_dictionaries(
            {"target": st.sampled_from(["earliest", "latest", "shift"]), "value": st.integers(-2, 2)}
        ),
    ),
    st.tuples(st.just("DescribeGroup"), st.just({})),
)


def outcome(text: str) -> str:
    """Without what two topics cannot share: names, ids and times."""
    text = text.replace("twin-rest", "twin").replace("twin-grpc", "twin")
    # Whole lines: what is zero has none, and uploads and clocks decide which are.
    own = r"^ *(id|created_ms|timestamp_ms|committed_ms|lag_ms|\w+_bytes|uploaded_end|segments): .*\n"
    return re.sub(own, "", text, flags=re.MULTILINE)


@settings(max_examples=12, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(history=st.lists(steps, min_size=3, max_size=12))
def test_the_same_history_has_the_same_answers_through_both(
    node: NodeProcess,
    rpc: Rpc,
    history: list[tuple[str, dict[str, Any]]],  # Any: JSON
) -> None:
    for twin in ("twin-rest", "twin-grpc"):
        rest(node, "DeleteTopic", name=twin)
        rest(node, "DeleteGroup", group=twin)
    for name, given_fields in history:
        of_group = name in ("ResetOffset", "DescribeGroup")

        def fields(
            twin: str, name: str = name, of_group: bool = of_group, given: Any = given_fields
        ) -> Any:  # Any: JSON
            whole = {**given, "group" if of_group else "name": twin}
            return {**whole, "topics": [twin]} if name == "ResetOffset" else whole

        answer = rest(node, name, **fields("twin-rest"))
        assert through(rpc, name, fields("twin-grpc")) == told(name, answer), name


def through(rpc: Rpc, name: str, fields: dict[str, Any]) -> tuple[str, str]:  # Any: JSON
    """The error's reason, if there is one, and the message or the answer."""
    try:
        return "", outcome(str(rpc.call(name, **fields)))
    except grpc.RpcError as error:
        info = error_details_pb2.ErrorInfo()
        rpc_status.from_call(error).details[0].Unpack(info)
        return info.reason, outcome(error.details())


def told(name: str, answer: httpx.Response) -> tuple[str, str]:
    error = answer.json()["error"]
    if error is None:
        return "", outcome(str(as_message(name, answer)))
    return error["reason"], outcome(error["message"])


@pytest.mark.parametrize(("name", "fields"), READS)
def test_what_is_read_is_the_same_message(
    node: NodeProcess, rpc: Rpc, name: str, fields: dict[str, Any]
) -> None:  # Any: JSON
    assert rpc.call(name, **fields) == as_message(name, rest(node, name, **fields))


@pytest.mark.requirement("R3.81")
def test_errors_carry_kafkas_name(rpc: Rpc) -> None:
    assert rpc.refusal("DescribeTopic", name="nowhere") == ("NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION")
    assert rpc.refusal("CreateTopic", name="a b") == ("INVALID_ARGUMENT", "INVALID_TOPIC_EXCEPTION")
    assert rpc.refusal("TriggerRebalance") == ("UNIMPLEMENTED", "UNSUPPORTED_VERSION")


def test_health_and_reflection_answer(rpc: Rpc) -> None:
    health = health_pb2_grpc.HealthStub(rpc.channel).Check(health_pb2.HealthCheckRequest())
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    database = ProtoReflectionDescriptorDatabase(rpc.channel)
    assert f"{PACKAGE}.{SERVICE}" in database.get_services()
    file = database.FindFileContainingSymbol(f"{PACKAGE}.{SERVICE}")
    assert {method.name for method in file.service[0].method} == {route.name for route in ROUTES}


def test_the_proto_file_describes_what_is_served(tmp_path: Path) -> None:
    """protoc itself reads it."""
    source = tmp_path / "admin.proto"
    source.write_text(proto_text())
    include = f"{grpc_tools.__path__[0]}/_proto"
    made = tmp_path / "made.bin"
    assert protoc.main(["protoc", f"-I{tmp_path}", f"-I{include}", f"--descriptor_set_out={made}", str(source)]) == 0
    compiled = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file[0]
    assert [each.name for each in compiled.service[0].method] == [route.name for route in ROUTES]
