"""The route table as an OpenAPI 3.1 document."""

from typing import Any, Final

import msgspec

from headrace import __version__
from headrace.admin.api.table import PREFIX, ROUTES, Route
from headrace.admin.rest.requests import DRY_RUN, IF_MATCH

_SCHEMAS: Final = "#/components/schemas/"
_ERRORS: Final = {
    "400": "The request is wrong, and will be wrong again.",
    "401": "Nobody knows who asks: send a token or a password in the Authorization header.",
    "403": "Not allowed.",
    "404": "Something that was named does not exist.",
    "409": "It contradicts what is already true.",
    "412": "If-Match names a state that has changed.",
    "413": "Too large.",
    "415": "The body is not JSON.",
    "422": "The Idempotency-Key was used for another request.",
    "500": "The node is at fault.",
    "501": "Not available yet.",
    "503": "Right request, wrong moment: try again.",
    "504": "It took too long, and may still happen.",
}

Json = dict[str, Any]  # Any: JSON


def document() -> Json:
    types = [each for route in ROUTES for each in (route.request, route.response)]
    schemas, components = msgspec.json.schema_components(list(dict.fromkeys(types)), ref_template=_SCHEMAS + "{name}")
    by_type = dict(zip(dict.fromkeys(types), schemas, strict=True))
    requests = {_named(by_type[route.request]) for route in ROUTES}
    paths: dict[str, Json] = {}
    for route in ROUTES:
        request = components[_named(by_type[route.request])]
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(
            route, request, by_type[route.response]
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace",
            "version": __version__,
            "description": "Administration of a headrace node. Every answer is {success, data, error, leader_hint}.",
        },
        "servers": [{"url": "/"}],
        # The empty one: a node that asks nobody who they are answers this machine without.
        "security": [{"token": []}, {"password": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {
                **{name: schema for name, schema in components.items() if name not in requests},
                "Error": _ERROR,
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
            "responses": {"Refused": _refused("What went wrong, with Kafka's name for it.")},
        },
    }


def _named(schema: Json) -> str:
    name: str = schema["$ref"].removeprefix(_SCHEMAS)
    return name


def _operation(route: Route, request: Json, response: Json) -> Json:
    properties: Json = request.get("properties", {})
    required = set(request.get("required", []))
    in_path = route.names_in_path
    in_query = [DRY_RUN] if route.has_body else [name for name in properties if name not in in_path]
    parameters = [_parameter(name, "path", properties[name], is_required=True) for name in in_path]
    parameters += [
        _parameter(name, "query", properties[name], is_required=name in required)
        for name in in_query
        if name in properties and name != IF_MATCH
    ]
    if IF_MATCH in properties:
        parameters.append(
            {"name": "If-Match", "in": "header", "required": False, "schema": {"type": "string"},
             "description": properties[IF_MATCH].get("description", "")}
        )  # fmt: skip
    if route.method == "POST":
        parameters.append(
            {"name": "Idempotency-Key", "in": "header", "required": False, "schema": {"type": "string", "maxLength": 200},
             "description": "A POST that comes again with the same key gets the first answer."}
        )  # fmt: skip
    operation: Json = {
        "operationId": route.name,
        "summary": route.sentence,
        "tags": [route.path.split("/")[1]],
        "x-right": _right(route),
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": _success(response)}}},
            **{status: _refused(sentence) for status, sentence in _ERRORS.items()},
        },
    }
    body = {name: schema for name, schema in properties.items() if name not in (*in_path, DRY_RUN, IF_MATCH)}
    if route.has_body and body:
        schema = {
            "type": "object",
            "properties": body,
            "required": sorted(required & body.keys()),
            "additionalProperties": False,
        }
        content: Json = {"schema": schema}
        if route.example:
            content["example"] = route.example
        operation["requestBody"] = {
            "required": bool(schema["required"]),
            "content": {"application/json": content},
        }
    return operation


def _right(route: Route) -> str:
    right = route.right
    return f"{right.operation.value} {right.resource.value}"


def _parameter(name: str, place: str, schema: Json, *, is_required: bool) -> Json:
    found: Json = {"name": name, "in": place, "required": is_required, "schema": schema}
    if "description" in schema:
        found["description"] = schema["description"]
    return found


_ERROR: Final[Json] = {
    "type": "object",
    "required": ["code", "reason", "message"],
    "properties": {
        "code": {"type": "integer", "description": "Kafka's number for it."},
        "reason": {"type": "string", "description": "Kafka's name for it."},
        "message": {"type": "string"},
    },
}


def _success(data: Json) -> Json:
    return {
        "type": "object",
        "required": ["success", "data", "error", "leader_hint"],
        "properties": {
            "success": {"const": True},
            "data": data,
            "error": {"type": "null"},
            "leader_hint": {"type": ["string", "null"]},
        },
    }


def _refused(sentence: str) -> Json:
    schema = {
        "type": "object",
        "required": ["success", "data", "error", "leader_hint"],
        "properties": {
            "success": {"const": False},
            "data": {"type": "null"},
            "error": {"$ref": _SCHEMAS + "Error"},
            "leader_hint": {"type": ["string", "null"]},
        },
    }
    return {"description": sentence, "content": {"application/json": {"schema": schema}}}
