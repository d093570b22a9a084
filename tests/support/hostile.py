"""Records that a producer may send and nobody wants: for whoever must not stop at any of them."""

from collections.abc import Callable

from crc32c import crc32c
from hypothesis import strategies as st

from headrace.records.batch import HEADER_SIZE, Codec
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord

NUMBERS = (
    *("0", "-0", "1", "-1", "1.5", "1.005", "0.1e1", "1e2", "127", "2147483648", "-9223372036854775808"),
    *("9223372036854775807", "9223372036854775808", "99999999999999999999999999999999999999999", "9" * 1200),
    *(
        "1e39",
        "1e400",
        "-1e400",
        "1e-400",
        "1e999999999",
        "-1e999999999",
        "1e-999999999",
        "1.5E+00099999",
        "1e2147483648",
    ),
    # Seconds around the years 1 and 9999, milliseconds, and what wraps around 64 bits as microseconds.
    *("253402300799", "253402300800", "-62135596800", "-62135596801", "999999999999", "1000000000000"),
    *("1700000000000", "-1700000000000", "17000000000000000", "18446744073709", "18448444073709", "9223372036855"),
    # No JSON, and yet seen.
    *("NaN", "Infinity", "-Infinity", "012", "0x10", "+1", ".5", "1.", "1_000", "True", "undefined"),
)
STRINGS = (
    *(
        '""',
        '" "',
        '"x"',
        '"0"',
        '"1"',
        '"1.5"',
        '"NaN"',
        '"Infinity"',
        '"-INF"',
        '"1e999999999"',
        '"5e123456"',
        '"null"',
    ),
    *('"1700000000000"', '"1700000000000000000"', '"99999999"', '"-99999999"', '"99999-01-01"', '"10000-01-01"'),
    *('"0000-12-31"', '"0001-01-01"', '"9999-12-31"', '"-0001-01-01"', '"2026-02-30"', '"2026-1-1"', '"2026"'),
    *('"2026-01-01T10:00:00Z"', '"2026-01-01T10:00:00.123456789+05:30"', '"2026-01-01 10:00:00"', '"now"', '"epoch"'),
    *(
        '"9999-12-31T23:59:59.999999Z"',
        '"9999-12-31T23:59:59-12:00"',
        '"0001-01-01T00:00:00Z"',
        '"0001-01-01T00:00:00+12:00"',
    ),
    *(
        '"+10000-01-01T00:00:00Z"',
        '"+294247-01-10T04:00:54.775807Z"',
        '"-290308-12-21T19:59:05.224192Z"',
        '"0000-01-01T00:00:00Z"',
    ),
    *(
        r'"\u0000"',
        r'"\ud800"',
        r'"\udfff\ud800"',
        r'"\udbff\udfff"',
        '"\U0010ffff\U0010ffff\U0010ffff\U0010ffff\U0010ffff"',
    ),
    *(
        r'"\x"',
        '"\u2028"',
        '"\ufeff"',
        '"\\',
        '"open',
        "'single'",
        '"' + "long " * 20_000 + '"',
        '"' + '\\"' * 5000 + '"',
    ),
)
NESTED = (
    *(
        "null",
        "true",
        "[]",
        "{}",
        "[null]",
        "[[]]",
        "[{}]",
        '{"": null}',
        '{"a": null}',
        '{"a": {"b": [null]}}',
        "[",
        "{",
    ),
    *(
        '[{"at": 1700000000000}]',
        '[{"at": "99999-01-01T00:00:00Z"}, null]',
        '[{"amount": 1e999999999}]',
        '[{"amount": "1e99999999"}]',
    ),
    *(
        '{"k": 17000000000000000}',
        '{"k": "99999-01-01T00:00:00Z"}',
        '{"k": null, "k": 1}',
        '{"a": {"b": ["99999-01-01"]}}',
    ),
    *("[" * 400 + "]" * 400, "[" * 1200 + "]" * 1200, '{"a":' * 600 + "1" + "}" * 600, "[" + "1," * 5000 + "1]"),
)
TEXTS = (
    *(
        b"",
        b" ",
        b"\x00",
        b"\xff\xfe",
        b"null",
        b"true",
        b"1",
        b'"text"',
        b"[]",
        b"{}",
        b"{",
        b"}",
        b"{}{}",
        b"{} x",
        b"{}\n{}",
    ),
    *(
        b"\xef\xbb\xbf{}",
        '{"id": 1}'.encode("utf-16"),
        '{"id": 1}'.encode("utf-32"),
        b'{"id": 1, "s": "\xff"}',
        b'{"\xff": 1}',
    ),
    *(
        b'{"id": 1, "id": 2}',
        b'{"id":1,}',
        b'{"ID": 1}',
        b'{"id" 1}',
        b'{"id": 1} // no',
        b'{/* */"id": 1}',
        b"\x1f\x8b\x08",
    ),
)
TIMES_MS = (
    0,
    1,
    -1,
    -2,
    1_700_000_000_000,
    -62_135_596_800_000,
    -62_135_596_800_001,
    253_402_300_799_999,
    253_402_300_800_000,
)
ABSURD_TIMES_MS = (
    10**15,
    -(10**15),
    2**62,
    -(2**62),
    9_223_372_036_854_775,
    9_223_372_036_854_776,
    2**63 - 1,
    -(2**63),
)

fragments = st.sampled_from([*NUMBERS, *STRINGS, *NESTED]) | st.integers().map(str) | st.floats().map(repr)


def documents(columns: list[str]) -> st.SearchStrategy[bytes]:
    """JSON objects of some of the columns, each with a fragment that may fit it or not."""
    pairs = st.lists(st.tuples(st.sampled_from(columns), fragments), max_size=4)
    return pairs.map(lambda chosen: _document({"id": "1", "at": '"2026-01-01T10:00:00Z"', **dict(chosen)}))


def every_fragment(columns: list[str]) -> list[bytes]:
    """Each fragment once in every column, so that what is known to be bad does not depend on luck."""
    return [
        _document({"id": "1", "at": '"2026-01-01T10:00:00Z"', column: fragment})
        for column in columns
        for fragment in (*NUMBERS, *STRINGS, *NESTED)
    ]


def hostile_records(columns: list[str]) -> st.SearchStrategy[NewRecord]:
    headers = st.lists(
        st.tuples(
            st.sampled_from(["", "h", "\u00e9", "headrace.unreadable", "app-env"]), st.none() | st.binary(max_size=9)
        ),
        max_size=2,
    )
    return st.builds(
        NewRecord,
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.sampled_from(TEXTS) | st.binary(max_size=60) | documents(columns),
        headers=headers.map(tuple),
        timestamp_ms=st.sampled_from(TIMES_MS) | st.sampled_from(ABSURD_TIMES_MS),
    )


def _document(members: dict[str, str]) -> bytes:
    return ("{" + ", ".join(f'"{name}": {value}' for name, value in members.items()) + "}").encode()


def _with_crc(batch: bytearray) -> bytearray:
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return batch


def _broken(change: Callable[[bytearray], None]) -> bytearray:
    records = [NewRecord(value=b'{"id": 1, "at": "2026-01-01T10:00:00Z"}', timestamp_ms=1) for _ in range(3)]
    batch = build_batch(records, now_ms=0)
    change(batch)
    return _with_crc(batch)


def _lie_about_length(batch: bytearray) -> None:
    batch[HEADER_SIZE] ^= 0x40


def _lie_about_codec(batch: bytearray) -> None:
    batch[22] |= Codec.ZSTD


def _lie_about_count(batch: bytearray) -> None:
    batch[57:61] = (2).to_bytes(4, "big")


def unreadable_batches() -> list[bytearray]:
    """Batches of three offsets with a valid CRC, as a broker takes them, that no reader can read."""
    return [_broken(change) for change in (_lie_about_length, _lie_about_codec, _lie_about_count)]
