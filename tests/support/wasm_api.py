"""The node's API about Wasm modules, as tests ask it."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import grpc
from google.protobuf import json_format
from tests.support.node import NodeProcess

from headrace.admin.grpc.schema import PACKAGE, SERVICE, Messages


class Api:
    def __init__(self, node: NodeProcess) -> None:
        self._address = node.endpoints["admin"]

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:  # Any: JSON
        return ask_address(self._address, method, path, body)

    def upload(self, name: str, code: bytes) -> str:
        answer = self.ask("POST", "/wasm/modules", {"name": name, "content": base64.b64encode(code).decode()})
        module_id: str = answer["module"]["id"]
        return module_id

    def assign(self, topic: str, module: str, **more: str) -> Any:  # Any: JSON
        return self.ask("POST", f"/topics/{topic}/wasm", {"module": module, **more})


def ask_address(address: str, method: str, path: str, body: object = None) -> Any:  # Any: JSON
    request = urllib.request.Request(
        f"http://{address}/api/v1{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error


def ask_by_grpc(node: NodeProcess, name: str, fields: dict[str, Any]) -> Any:  # Any: as JSON has it
    """A client made from the descriptors alone."""
    messages = Messages()
    request, response = messages.of(f"{name}Request"), messages.of(f"{name}Response")
    with grpc.insecure_channel(node.endpoints["grpc"]) as channel:
        method = channel.unary_unary(
            f"/{PACKAGE}.{SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        answer = method(json_format.ParseDict(fields, request()), timeout=60)
    return json_format.MessageToDict(answer, preserving_proto_field_name=True)
