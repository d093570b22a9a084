"""From an HTTP request to the struct that its route asks for. What does not fit is refused with the name of the field."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from headrace.admin.api.table import PREFIX, ROUTES, Route
from headrace.errors import Invalid, ResourceNotFound, suggest

DRY_RUN: Final = "dry_run"
IF_MATCH: Final = "if_match"
_PARAMETERS_MAX: Final = 50


class NoSuchMethod(ResourceNotFound):
    """The path is there, the method is not."""

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"{method} is not possible here; {', '.join(allowed)} is")
        self.allowed = allowed


class _Pattern(msgspec.Struct, frozen=True):
    route: Route
    parts: tuple[str, ...]


_PATTERNS: Final = tuple(_Pattern(route, tuple(route.path.strip("/").split("/"))) for route in ROUTES)


def find_route(method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
    """By the path as it was sent: a name may contain an escaped slash."""
    path = raw_path.decode("ascii", "replace").partition("?")[0]
    parts = path.removeprefix(PREFIX).strip("/").split("/")
    found = [(each, names) for each in _PATTERNS if (names := _names(each, parts)) is not None]
    for pattern, names in found:
        if pattern.route.method == method:
            return pattern.route, names
    if found:
        raise NoSuchMethod(method, sorted({pattern.route.method for pattern, _ in found}))
    raise ResourceNotFound(f"no {path[:200]}; {PREFIX}/openapi.json says what there is")


def _names(pattern: _Pattern, parts: Sequence[str]) -> dict[str, str] | None:
    if len(parts) != len(pattern.parts):
        return None
    names = {}
    for expected, part in zip(pattern.parts, parts, strict=True):
        if expected.startswith("{"):
            names[expected[1:-1]] = unquote(part, errors="replace")
        elif expected != part:
            return None
    return names


def read_request(
    route: Route, names: Mapping[str, str], query: bytes, body: bytes, headers: Mapping[str, str]
) -> Any:  # Any: the route's own request type
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(route.request)}
    given: dict[str, Any] = {}  # Any: as JSON has it
    for name, text in names.items():
        given[name] = _from_text(name, text, fields[name])
    allowed = {DRY_RUN} & fields.keys() if route.has_body else fields.keys() - names.keys() - {IF_MATCH}
    for name, text in _parameters(query):
        if name not in allowed:
            raise Invalid(f"query: no parameter {name[:100]!r}{suggest(name, allowed)}")
        if name in given:
            raise Invalid(f"query: {name} is given twice")
        given[name] = _from_text(name, text, fields[name])
    if route.has_body:
        given |= _from_body(body, fields.keys() - names.keys() - {DRY_RUN, IF_MATCH})
    if IF_MATCH in fields and (tag := headers.get("if-match", "*")) != "*":
        given[IF_MATCH] = tag.removeprefix("W/").strip('"')
    try:
        return msgspec.convert(given, route.request)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from error


def _parameters(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX)
    except ValueError as error:
        raise Invalid(f"query: {error}") from error


def _from_text(name: str, text: str, kind: Any) -> Any:  # Any: the field's own type and value
    try:
        return msgspec.to_builtins(msgspec.convert(text, kind, strict=False))
    except msgspec.ValidationError as error:
        raise Invalid(f"{name}: {error}") from error


def _from_body(body: bytes, allowed: Any) -> dict[str, Any]:  # Any: JSON
    if not body:
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Invalid(f"body: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Invalid("body: expected a JSON object")
    for name in found.keys() - allowed:
        raise Invalid(f"body: no field {name[:100]!r}{suggest(name, allowed)}")
    return found
