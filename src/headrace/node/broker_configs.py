"""This node's settings as Kafka's admin tools see them: DescribeConfigs of a broker.

Our own keys as they are, and beside them the names of Kafka brokers for what has a value here but no setting: tools ask
for `default.replication.factor` and the like before they create topics.
"""

from typing import Final

import msgspec

from headrace.config.keys import all_keys
from headrace.config.settings import NodeSettings

_FIXED: Final = {
    "default.replication.factor": "1",
    "delete.topic.enable": "true",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "unclean.leader.election.enable": "false",
}
_SECRET_WORDS: Final = ("secret", "password", "token", "credential", "access.key")


def broker_configs(settings: NodeSettings, *, broker_id: int) -> dict[str, str]:
    configs = dict(_FIXED)
    for key in all_keys().values():
        value = getattr(getattr(settings, key.section), key.field)
        if value is not None and not any(word in key.name for word in _SECRET_WORDS):
            configs[key.name] = _show(value)
    configs["broker.id"] = configs["node.id"] = str(broker_id)
    configs["log.dirs"] = str(settings.server.data_dir)
    return configs


def _show(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=str).decode().strip('"')
