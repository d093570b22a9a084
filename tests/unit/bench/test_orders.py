"""The orders that W10 and backfills read are what the benchmark says they are."""

import json

import cramjam

from headrace.bench.load.orders import ORDER_BYTES, ORDER_DDL, ORDER_EVENT_TIME, make_orders


def test_orders_are_json_of_1_kib_with_ten_columns() -> None:
    orders = make_orders(50)
    assert {len(order) for order in orders} == {ORDER_BYTES}
    names = [column.split()[0] for column in ORDER_DDL.split(", ")]
    assert len(names) == 10
    assert ORDER_EVENT_TIME in names
    assert all(list(json.loads(order)) == names for order in orders)


def test_orders_are_always_the_same_and_each_is_another() -> None:
    assert make_orders(50) == make_orders(50)
    assert len(set(make_orders(50))) == 50


def test_orders_compress_about_two_to_one() -> None:
    data = b"".join(make_orders(128))
    assert 1.5 < len(data) / len(cramjam.lz4.compress(data)) < 4
