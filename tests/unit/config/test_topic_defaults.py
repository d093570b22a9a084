from headrace.broker.topic_config import TOPIC_CONFIG_KEYS, checked_config
from headrace.config.load import load
from headrace.config.topic_defaults import TopicDefaultSettings
from headrace.log.policy import Durability


def test_defaults_are_those_of_the_topic_config_itself() -> None:
    """Two places state them, so that each can be read alone; this keeps them one."""
    config = TopicDefaultSettings().as_topic_config()
    assert config == {name: TOPIC_CONFIG_KEYS[name].default for name in config}


def test_every_durability_can_be_the_default() -> None:
    for durability in Durability:
        settings = load(environ={}, assignments=[f"default.durability={durability}"])
        assert settings.topic_defaults.as_topic_config()["durability"] == durability


def test_whatever_the_settings_take_a_topic_takes() -> None:
    settings = TopicDefaultSettings(
        log_cleanup_policy="compact,delete", log_retention_ms=-1, default_durability="object"
    )
    checked_config(settings.as_topic_config())
