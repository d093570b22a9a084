"""This node's settings as Kafka's admin tools see them: DescribeConfigs of a broker.

Our own keys as they are, and beside them the names of Kafka brokers for what has a value here but no setting: tools ask
for `default.replication.factor` and the like before they create topics.
"""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT

from headrace.broker.config_key import INT_MAX
from headrace.broker.identity import BrokerConfig
from headrace.config.keys import Key, all_keys, sentences_of
from headrace.config.settings import NodeSettings, sections

_FIXED: Final = (
    ("default.replication.factor", "1", "int", "Object storage holds the copies"),
    ("delete.topic.enable", "true", "boolean", "Topics can be deleted"),
    ("min.insync.replicas", "1", "int", "One WAL holds what object storage does not have yet"),
    ("offsets.topic.replication.factor", "1", "short", "Object storage holds the copies"),
    ("transaction.state.log.replication.factor", "1", "short", "Object storage holds the copies"),
    ("transaction.state.log.min.isr", "1", "int", "One WAL holds what object storage does not have yet"),
    ("unclean.leader.election.enable", "false", "boolean", "Nobody leads a partition whose records it does not have"),
)
_KINDS: Final = {
    # What our types do not tell, as Kafka's brokers have it.
    "connections.max.idle.ms": "long",
    "log.cleanup.policy": "list",
    "offset.metadata.max.bytes": "int",
}
_SECRET_WORDS: Final = ("secret", "password", "token", "credential", "access.key")


def broker_configs(settings: NodeSettings, *, broker_id: int) -> dict[str, BrokerConfig]:
    return {each.name: each for each in _all(settings, str(broker_id))}


def _all(settings: NodeSettings, broker_id: str) -> Iterator[BrokerConfig]:
    for name, value, kind, doc in _FIXED:
        yield BrokerConfig(name=name, value=value, default=value, kind=kind, doc=doc)
    sentences = {part.name: sentences_of(part.type) for part in sections()}
    for key in all_keys().values():
        value = getattr(getattr(settings, key.section), key.field)
        is_secret = any(word in key.name for word in _SECRET_WORDS)
        yield BrokerConfig(
            name=key.name,
            value=None if is_secret else _show(value),
            default=None if is_secret or key.default is NODEFAULT else _show(key.default),
            kind="password" if is_secret else _kind_of(key),
            doc=sentences[key.section].get(key.field, ""),
        )
    for name in ("broker.id", "node.id"):
        yield BrokerConfig(name=name, value=broker_id, default=None, kind="int", doc="This broker's number")
    data_dir = str(settings.server.data_dir)
    yield BrokerConfig(name="log.dirs", value=data_dir, default=None, kind="list", doc="Where this node keeps things")


def _show(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ",".join(str(each) for each in value)
    return msgspec.json.encode(value, enc_hook=str).decode().strip('"')


def _kind_of(key: Key) -> str:
    return _KINDS.get(key.name) or _kind_of_type(key.type, key.name, key.default)


def _kind_of_type(annotation: Any, name: str, default: object) -> str:  # Any: whatever a field is annotated with
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        (only,) = (each for each in arguments if each is not NoneType)
        return _kind_of_type(only, name, default)
    if origin is Annotated:
        high = next((meta.le for meta in arguments[1:] if getattr(meta, "le", None) is not None), None)
        kind = _kind_of_type(arguments[0], name, default)
        if kind == "int" and (name.endswith(".bytes") if high is None else high > INT_MAX):
            return "long"
        return kind
    if origin is Literal or annotation is str:
        return "string"
    kinds = {bool: "boolean", int: "int", float: "double"}
    return kinds.get(annotation, "list")
