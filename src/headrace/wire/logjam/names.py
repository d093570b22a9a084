"""Who a message is from (`application-environment`) and what it is about (its topic).

The grammar allows letters only. Real applications use digits, `_` and `-` too, so the default rule is what
real servers check: printable ASCII with a hyphen, split at the last one. Strict names are a setting.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from headrace.errors import InvalidName
from headrace.limits import TOPIC_NAME_LENGTH_MAX

_STRICT_STREAM: Final = re.compile(rb"[A-Za-z]+-[A-Za-z]+")
_REAL_STREAM: Final = re.compile(rb"[\x20-\x7e]+-[\x20-\x7e]+")
_STRICT_TOPIC: Final = re.compile(rb"(?:logs|javascript|events)[A-Za-z.]*|frontend\.page|frontend\.ajax")
_REAL_TOPIC: Final = re.compile(rb"(?:logs|javascript|events|frontend\.page|frontend\.ajax|mobile)[\x20-\x7e]*")
_NOT_IN_TOPIC_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")

LOG_TOPIC_PREFIX: Final = "logjam-"
APP_ENV_LENGTH_MAX: Final = TOPIC_NAME_LENGTH_MAX - len(LOG_TOPIC_PREFIX)
"""Longer ones would not fit the name of a log topic."""

NAMES_CACHED: Final = 1024
"""An application sends the same few names over and over."""


class Stream(NamedTuple):
    """One application in one environment."""

    application: str
    environment: str

    @property
    def app_env(self) -> str:
        return f"{self.application}-{self.environment}"


@lru_cache(maxsize=NAMES_CACHED)
def parse_stream(app_env: bytes, *, is_strict: bool = False) -> Stream:
    pattern = _STRICT_STREAM if is_strict else _REAL_STREAM
    if len(app_env) > APP_ENV_LENGTH_MAX or pattern.fullmatch(app_env) is None:
        raise InvalidName(f"app-env {app_env[:80]!r}")
    application, _, environment = app_env.decode("ascii").rpartition("-")
    if not application or not environment:
        raise InvalidName(f"app-env {app_env[:80]!r}")
    return Stream(application, environment)


@lru_cache(maxsize=NAMES_CACHED)
def is_topic(topic: bytes, *, is_strict: bool = False) -> bool:
    pattern = _STRICT_TOPIC if is_strict else _REAL_TOPIC
    return len(topic) <= 255 and pattern.fullmatch(topic) is not None


def log_topic_name(stream: Stream) -> str:
    """The topic of the log that keeps this stream. What a topic name cannot hold becomes `_`."""
    return LOG_TOPIC_PREFIX + _NOT_IN_TOPIC_NAMES.sub("_", stream.app_env)
