import pytest

from headrace.cli.doors import Start, open_reader, open_writer, refuse_keys
from headrace.errors import Invalid


def test_what_a_door_cannot_carry_is_refused_rather_than_lost() -> None:
    refuse_keys("rustlog", None, [])
    with pytest.raises(Invalid, match="carries no keys"):
        refuse_keys("rustlog", b"k", [])
    with pytest.raises(Invalid, match="carries no headers"):
        refuse_keys("mlog", None, [("a", b"1")])
    with pytest.raises(Invalid, match="takes no codec"):
        open_writer("logjam", "localhost:1", acks="all", codec="zstd")
    with pytest.raises(Invalid, match="does not know transactions"):
        open_reader("mlog", "localhost:1", group=None, start=Start(), is_committed_only=True)


def test_doors_that_cannot_start_there_say_where_they_can() -> None:
    with pytest.raises(Invalid, match="--from-beginning or --offset"):
        open_reader("mlog", "localhost:1", group=None, start=Start(), is_committed_only=False)
    with pytest.raises(Invalid, match="--door kafka"):
        open_reader("logjam", "localhost:1", group=None, start=Start(offset=3), is_committed_only=False)
