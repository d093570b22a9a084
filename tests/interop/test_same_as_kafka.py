"""Random requests to Apache Kafka and to headrace: the answers are the same, field by field, but for a known list.

Each seed is a world of its own: topics, groups and producers that no other seed touches, and every version of every
request that both brokers announce, with values legal and illegal. `make same-as-kafka` runs it;
SAME_AS_KAFKA_SEEDS says how many seeds, and SAME_AS_KAFKA_SEED which one first. What was asked and answered in each is in
`.cache/same-as-kafka`.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kafka_messages import SCHEMAS
from tests.support.same_as_kafka.brokers import KAFKA_SETTINGS, NODE_SETTINGS, both
from tests.support.same_as_kafka.judging import judge
from tests.support.same_as_kafka.known import KNOWN, OWN_CONFIGS
from tests.support.same_as_kafka.pairing import Pair, paired
from tests.support.same_as_kafka.rights import KINDS_OF_RIGHTS, run_rights
from tests.support.same_as_kafka.running import ABOUT_RIGHTS, UNDRAWN, Step, common_kinds, run

from headrace.doors.kafka.routes import ROUTES

SEEDS = int(os.environ.get("SAME_AS_KAFKA_SEEDS", "3"))
FIRST_SEED = int(os.environ.get("SAME_AS_KAFKA_SEED", "1"))
ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "protocols" / "kafka.md"
TRAILS = ROOT / ".cache" / "same-as-kafka"

KAFKA_RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
NODE_RIGHTS = {"security.authorization.enable": "true", "security.super.users": "User:ANONYMOUS"}


@pytest.mark.long
@pytest.mark.timeout(120 + 300 * SEEDS)
def test_random_requests_are_answered_as_apache_kafka_answers_them(tmp_path: Path) -> None:
    with both(tmp_path, KAFKA_SETTINGS, NODE_SETTINGS) as (ours, theirs):
        unknown = []
        for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
            with paired(ours, theirs) as pair:
                check_every_version(pair)
                unknown += _unknown_differences(pair, seed, run(pair, seed, common_kinds(pair)))
    assert unknown == [], "\n".join(unknown)


@pytest.mark.long
@pytest.mark.timeout(120 + 60 * SEEDS)
def test_random_requests_about_rights_are_answered_as_apache_kafka_answers_them(tmp_path: Path) -> None:
    """Both brokers keep access rules, which bind everybody but whoever asks."""
    with both(tmp_path, KAFKA_SETTINGS | KAFKA_RIGHTS, NODE_SETTINGS | NODE_RIGHTS) as (ours, theirs):
        unknown = []
        for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
            with paired(ours, theirs) as pair:
                steps = run_rights(pair, seed, common_kinds(pair, is_about_rights=True))
                unknown += _unknown_differences(pair, seed, steps, trail="rights-")
    assert unknown == [], "\n".join(unknown)


def check_every_version(pair: Pair) -> None:
    """What is compared is the whole route table, as the documentation says."""
    kinds = [*common_kinds(pair), *common_kinds(pair, is_about_rights=True)]
    compared = {SCHEMAS[kind.name].api_key: (kind.first, kind.last) for kind in kinds}
    assert compared == {key: tuple(route.versions) for key, route in ROUTES.items() if key not in UNDRAWN}


def _unknown_differences(pair: Pair, seed: int, steps: Iterator[Step], *, trail: str = "") -> list[str]:
    counts: Counter[str] = Counter()
    unknown = judge(pair, seed, ((step, step) for step in steps), TRAILS / f"{trail}{seed}.txt", counts)
    assert counts["steps"] > 100, "most requests were not sent"
    return unknown


def test_what_is_known_to_differ_is_documented() -> None:
    rows = [line.removeprefix("| ") for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    undocumented = {known.row for known in KNOWN if not any(row.startswith(known.row) for row in rows)}
    assert undocumented == set()


def test_configs_that_only_headrace_has_are_documented() -> None:
    (row,) = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| configs of a topic |")]
    assert {name for name in OWN_CONFIGS if f"`{name}`" not in row} == set()


def test_every_request_is_compared_but_those_that_are_named() -> None:
    """Also what was added to the route table since."""
    names = {schema.api_key: name for name, schema in SCHEMAS.items() if name.endswith("Request")}
    assert {names[key] for key in ABOUT_RIGHTS} == KINDS_OF_RIGHTS
    text = DOCUMENT.read_text().partition("## ")[0]
    assert all(names[key].removesuffix("Request") in text for key in UNDRAWN)
    assert ROUTES.keys() >= UNDRAWN | ABOUT_RIGHTS
