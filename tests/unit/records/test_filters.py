import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.steps import Steps

from headrace.errors import Invalid
from headrace.records.filters import DEPTH_MAX, parse_filter
from headrace.records.record import Record

ORDER = Record(
    7, 1_700_000_000_000, b"alice", b'{"order": {"amount": 12.5, "items": ["tea"]}, "paid": true, "id": 9007199254740993}', (("source", b"web"),)
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "",
        'key == "alice"',
        'key contains "lic"',
        'value contains "tea"',
        'header.source == "web"',
        "header.other == null",
        "json.order.amount > 12",
        'json.order.items.0 == "tea"',
        "json.paid == true",
        "json.id == 9007199254740993",
        "offset >= 7 and offset < 8",
        "timestamp == 1700000000000",
        'key == x"616c696365"',
        '"web"',
        'not key == "bob" and (json.paid == false or json.order.amount <= 12.5)',
        "json.nothing == null",
        'json.nothing != "x"',
    ],
)
def test_what_is_true_of_a_record_matches_it(text: str) -> None:
    assert parse_filter(text).matches(ORDER)


@pytest.mark.parametrize(
    "text",
    [
        'key == "ALICE"',
        "json.paid == 1",
        "json.paid > 0",
        "json.id == 9007199254740992",
        "json.order.items.1 == null and json.order.items.0 == null",
        'json.order > "x"',
        "json.nothing > 0",
        "json.nothing < 0",
        "offset < 7",
        '"coffee"',
    ],
)
def test_what_is_not_true_does_not(text: str) -> None:
    assert not parse_filter(text).matches(ORDER)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key ==", "ends where a value should follow"),
        ("key = 5", "cannot read"),
        ("colour == 1", "no field 'colour'"),
        ("key == alice", "put text in quotes"),
        ("(key == 1", "a bracket is not closed"),
        ("key == 1 key == 2", "expected `and` or `or`"),
        ("key like 1", "no operator 'like'"),
        ('key == x"0"', "half a byte"),
        ("json.a contains 5", "needs text"),
        ("not " * (DEPTH_MAX + 2) + "key == 1", "nested more than"),
        ("x" * 3000, "2000 are possible"),
        ("json" + ".a" * 17 + " == 1", "a path of 17 names"),
        ("__import__('os')", "cannot read"),
    ],
)
def test_what_is_no_filter_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message.replace("(", r"\(")):
        parse_filter(text)


def test_a_value_that_is_no_json_has_no_fields() -> None:
    for value in (None, b"", b"\xff", b"{", b"[" * 100_000):
        record = Record(0, 0, None, value)
        assert not parse_filter('json.a == "x"').matches(record)
        assert parse_filter("json.a == null").matches(record)


names = st.sampled_from(["a", "b", "käse"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([1.0, -0.0, 0.5, 1e2, 2.5e-3, 2**62 + 1, -(2**63), 2**64, 10**25, 1e300])
    | st.sampled_from(["x", "b", "käse", "\u2028", 'q"', "0", "a/b", "\\"])
)
documents = st.dictionaries(
    names, scalars | st.dictionaries(names, scalars) | st.lists(scalars, max_size=3), max_size=3
)
literals = scalars.map(lambda each: msgspec.json.encode(each).decode())
comparisons = st.tuples(
    st.sampled_from(["json.a", "json.b.a", "json.käse", "json.a.0", "key", "value", "header.h", "offset"]),
    st.sampled_from(["==", "!=", "<", ">=", "contains"]),
    literals,
).map(" ".join)
filters = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        inner.map("not {}".format),
        st.tuples(inner, inner).map("({0[0]} and {0[1]})".format),
        st.tuples(inner, inner).map("({0[0]} or {0[1]})".format),
    ),
    max_leaves=4,
)


@settings(max_examples=400)
@example(text='json.a == "\u2028"', value={"a": "\u2028"}, is_escaped=False, key=None, indent=None)
@example(text='json.a == "a/b"', value={"a": "a/b"}, is_escaped=False, key=None, indent=None)
@example(text="json.a == 100", value={"a": 1e2}, is_escaped=False, key=None, indent=None)
@example(text="json.a >= 1", value={"b": {"a": 1}, "a": "1"}, is_escaped=False, key=None, indent=None)
@given(text=filters, value=documents, is_escaped=st.booleans(), key=scalars, indent=st.sampled_from([None, 0, 3]))
def test_the_quick_look_at_bytes_never_leaves_out_a_record_that_matches(
    text: str, value: object, is_escaped: bool, key: object, indent: int | None
) -> None:
    import json

    encoded = json.dumps(value, ensure_ascii=is_escaped, indent=indent).encode()
    record = Record(1, 1, str(key).encode(), encoded, (("h", b"x"),))
    try:
        chosen = parse_filter(text)
    except Invalid:
        return
    if chosen.matches(record):
        assert chosen.may_match((record.key or b"") + encoded + b"hx")


@pytest.mark.parametrize(
    "text",
    [
        "json.n == -1",
        "json.n < 0",
        "json.n >= 1e9",
        "json.half == 0.25",
        'json.user == "nobody"',
        'json.user contains "nobody"',
        'key == "nobody"',
    ],
)
def test_bytes_of_records_that_do_not_match_are_looked_at_in_c(text: str) -> None:
    """Records that are read one by one are searched at a tenth of the speed."""
    value = b"".join(b'\x00{"n": %d, "half": 0.5, "user": "u%d"}' % (number, number) for number in range(5_000))
    chosen = parse_filter(text)
    steps = Steps()
    with steps.counted():
        assert not chosen.may_match(value)
    assert steps.count < 200
