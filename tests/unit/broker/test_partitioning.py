import pytest

from headrace.broker.partitioning import murmur2, partition_for_key


# From Apache Kafka's own UtilsTest.testMurmur2.
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_kafkas_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


def test_a_partition_is_never_negative() -> None:
    assert all(0 <= partition_for_key(bytes([number]), 7) < 7 for number in range(256))
