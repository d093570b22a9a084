"""The route table is true: it serves what it advertises, and no more than the codec can read."""

import pytest

from headrace.doors.kafka.routes import ROUTES, AnyRoute, Route, advertised_ranges, route_table
from headrace.wire.kafka import fetch, produce

BASELINE = {0: 3, 1: 4, 2: 1, 3: 0, 8: 2, 9: 1, 10: 0, 11: 0, 12: 0, 13: 0, 14: 0, 18: 0, 19: 2, 20: 1, 22: 0}
"""First versions that clients of 2026 may speak (KIP-896)."""


@pytest.mark.requirement("R4.13")
@pytest.mark.parametrize("route", ROUTES.values(), ids=lambda route: route.key.name)
def test_route_serves_versions_its_message_has(route: AnyRoute) -> None:
    first, last = route.versions
    assert 0 <= first <= last
    if isinstance(route, Route):
        low, high = route.request.VERSIONS
        assert low <= first
        assert last <= high
        assert route.key == route.request.API_KEY


def test_hand_written_codecs_cover_their_routes() -> None:
    assert produce.FIRST_VERSION <= ROUTES[0].versions[0] <= ROUTES[0].versions[1] <= produce.LAST_VERSION
    assert fetch.FIRST_VERSION <= ROUTES[1].versions[0] <= ROUTES[1].versions[1] <= fetch.LAST_VERSION


@pytest.mark.requirement("R4.24")
@pytest.mark.trap(5)
def test_only_produce_is_advertised_below_what_is_served() -> None:
    for row in advertised_ranges():
        served = ROUTES[row.key].versions
        assert row.last == served[1]
        assert row.first == (0 if row.key == 0 else served[0])


@pytest.mark.trap(13, 37, 47)
@pytest.mark.parametrize(("key", "first"), BASELINE.items())
def test_ranges_begin_where_clients_do(key: int, first: int) -> None:
    assert ROUTES[key].versions[0] == first


@pytest.mark.trap(37)
def test_no_range_that_clients_need_is_a_single_version() -> None:
    single = {key for key, route in ROUTES.items() if route.versions[0] == route.versions[1]}
    # One version is all that Kafka itself has of these. Of 17 the other one announces messages without frames, which nobody
    # has to send any more.
    assert single <= {17, 46, 47, 50, 51, 61, 65, 75}


def test_key_is_routed_once() -> None:
    with pytest.raises(AssertionError):
        route_table(ROUTES[0], ROUTES[0])
