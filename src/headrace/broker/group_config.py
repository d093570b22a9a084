"""Group configuration by Kafka's names: what each key means, and the bounds that the broker's settings put on it.

Groups of the classic protocol have no configs: their members choose for themselves.
"""

from collections.abc import Mapping
from typing import Final

from headrace.broker.config_key import INT_MAX, ConfigKey, checked_values, integer
from headrace.broker.groups.settings import GroupSettings
from headrace.errors import Invalid

HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"

GROUP_CONFIG_KEYS: Final[Mapping[str, ConfigKey]] = {
    HEARTBEAT_INTERVAL: ConfigKey(
        name=HEARTBEAT_INTERVAL,
        default="5000",
        kind="int",
        check=integer(1, INT_MAX),
        doc="How often members of a KIP-848 group report",
        broker_name="group.consumer.heartbeat.interval.ms",
    ),
    SESSION_TIMEOUT: ConfigKey(
        name=SESSION_TIMEOUT,
        default="45000",
        kind="int",
        check=integer(1, INT_MAX),
        doc="When a silent member of a KIP-848 group is given up",
        broker_name="group.consumer.session.timeout.ms",
    ),
}


def group_defaults(settings: GroupSettings) -> dict[str, str]:
    """What groups have for which nobody has set anything."""
    return {
        HEARTBEAT_INTERVAL: str(settings.consumer_heartbeat_interval_ms),
        SESSION_TIMEOUT: str(settings.consumer_session_timeout_ms),
    }


def checked_group_config(overrides: Mapping[str, str], settings: GroupSettings) -> dict[str, str]:
    """The overrides as a group keeps them; `Invalid`, naming the key, unless it can run with them."""
    overrides = checked_values(overrides, GROUP_CONFIG_KEYS, "group")
    values = {name: int(text) for name, text in (group_defaults(settings) | dict(overrides)).items()}
    bounds = {
        HEARTBEAT_INTERVAL: (settings.consumer_heartbeat_interval_ms_min, settings.consumer_heartbeat_interval_ms_max),
        SESSION_TIMEOUT: (settings.consumer_session_timeout_ms_min, settings.consumer_session_timeout_ms_max),
    }
    for name in overrides:
        low, high = bounds[name]
        if not low <= values[name] <= high:
            raise Invalid(f"{name}: {values[name]} is outside {low}..{high}, the bounds of this broker's settings")
    if overrides and values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise Invalid(f"{SESSION_TIMEOUT}: {values[SESSION_TIMEOUT]} is not more than {HEARTBEAT_INTERVAL}")
    return overrides
