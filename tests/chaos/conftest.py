"""One integer replays the choices of a run: set HEADRACE_TEST_SEED to the one a failure printed."""

import os
import random
from collections.abc import Iterator

import pytest
from tests.support.ports import kept_port


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("HEADRACE_TEST_SEED", random.SystemRandom().randrange(1 << 31)))
    print(f"HEADRACE_TEST_SEED={chosen}")
    return chosen


@pytest.fixture
def kafka_address() -> Iterator[str]:
    """A port that stays the same over restarts, so that clients find the node again."""
    with kept_port() as port:
        yield f"127.0.0.1:{port}"
