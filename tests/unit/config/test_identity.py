import re
from pathlib import Path

import pytest

from headrace.config.identity import broker_id
from headrace.config.server import ServerSettings
from headrace.errors import Invalid


@pytest.mark.requirement("R3.94")
def test_a_name_is_made_up_once_and_kept(tmp_path: Path) -> None:
    settings = ServerSettings(data_dir=str(tmp_path / "node"))
    first = broker_id(settings)
    assert re.fullmatch(r"headrace-[0-9a-f]{8}", first)
    assert broker_id(settings) == first
    assert broker_id(ServerSettings(data_dir=str(tmp_path / "other"))) != first


def test_a_name_that_was_given_wins(tmp_path: Path) -> None:
    assert broker_id(ServerSettings(broker_id="mill", data_dir=str(tmp_path))) == "mill"
    assert not (tmp_path / "broker.id").exists()


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match=r"data\.dir: cannot keep"):
        broker_id(ServerSettings(data_dir=str(tmp_path / "file")))


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe\x00garbage", b"a\x00b", b"x" * 200])
def test_a_file_that_holds_no_name_is_named_with_the_way_on(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broker.id").write_bytes(content)
    with pytest.raises(Invalid, match=r"broker\.id does not hold a broker's name any more: .* or remove the file"):
        broker_id(ServerSettings(data_dir=str(tmp_path)))
    assert (tmp_path / "broker.id").read_bytes() == content
