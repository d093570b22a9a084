"""The OpenAPI document is what the API does: schemathesis makes up requests from it, good and bad, and judges the answers."""

from typing import Any

import httpx
import msgspec
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from tests.support.node import NodeProcess

from headrace.admin.api.table import PREFIX, ROUTES
from headrace.admin.rest.openapi import document

NOT_FOR_MADE_UP_REQUESTS = {"VerifyStorage", "SearchTopic", "TriggerRebalance", "DrainBroker"}
"""Two start processes or read the whole bucket each time; the others answer 501, which is no fault of the server."""
SCHEMA = schemathesis.openapi.from_dict({**document(), "security": []})
"""Without made-up passwords: each would cost a delay, and be refused whatever else the request says."""


def test_every_route_is_in_the_document_with_its_right(api: httpx.Client) -> None:
    served = api.get("/openapi.json").json()
    assert served == msgspec.json.decode(msgspec.json.encode(document()))
    assert served["openapi"] == "3.1.0"
    for route in ROUTES:
        operation = served["paths"][PREFIX + route.path][route.method.lower()]
        assert operation["operationId"] == route.name
        assert operation["x-right"] == f"{route.right.operation.value} {route.right.resource.value}"
        assert operation["summary"].endswith(".")


def test_names_are_unique_and_every_example_is_a_request() -> None:
    names = [route.name for route in ROUTES]
    assert len(set(names)) == len(names)
    for route in ROUTES:
        if route.example:
            fields = {**dict.fromkeys(route.names_in_path, "x"), **route.example}
            msgspec.convert(
                {**fields, **({"partition": 0} if "partition" in route.names_in_path else {})}, route.request
            )


@SCHEMA.exclude(operation_id=list(NOT_FOR_MADE_UP_REQUESTS)).parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_made_up_requests_get_the_answers_that_the_document_promises(
    case: Any, node: NodeProcess
) -> None:  # Any: untyped
    # What a request does to the node is another test's business: nothing here may delete what others use.
    if case.method in ("POST", "PATCH", "DELETE") and "dry_run" in str(case.operation.definition.raw):
        case.query = {**(case.query or {}), "dry_run": "true"}
    case.call_and_validate(
        base_url=f"http://{node.endpoints['admin']}",
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
            negative_data_rejection,
        ],
    )
