"""The inspector says what frames are, where they stand, and where the bytes stop making sense."""

import struct
from pathlib import Path

import pytest

from headrace.cli.inspection import Asked, Seen, inspect_kafka_requests, inspect_logjam, inspect_mlog, inspect_rustlog
from headrace.cli.main import main
from headrace.wire.logjam.compression import Compression, compress
from headrace.wire.logjam.messages import build_data
from headrace.wire.logjam.meta import Meta
from headrace.wire.mlog import codec as mlog
from headrace.wire.mlog import messages as m
from headrace.wire.rustlog import codec as rustlog
from headrace.wire.rustlog import messages as r


@pytest.mark.requirement("C6")
def test_rustlog_frames_have_their_codes() -> None:
    data = rustlog.encode(r.Ping()) + rustlog.encode(r.Pong()) + rustlog.encode(r.Error(code=404, message="no"))
    seen = list(inspect_rustlog(data))
    assert [(each.position, each.name, each.code) for each in seen] == [
        (0, "Ping", "0x0a"),
        (19, "Pong", "0x8a"),
        (38, "Error", "0xff"),
    ]
    assert seen[2].content == {"code": 404, "message": "no", "details": None}


def test_rustlog_problems_are_shown_and_reading_goes_on() -> None:
    bad = [b"{", b'{"type":"Fetch"}', b'{"type":"Nope"}', b"[]"]
    data = b"".join(map(rustlog.encode_frame, bad)) + rustlog.encode(r.Ping()) + b"\xff\xff\xff\xff"
    seen = list(inspect_rustlog(data))
    assert [each.problem is None for each in seen] == [False] * 4 + [True, False]
    assert seen[1].name == "Fetch"


def test_mlog_frames() -> None:
    data = mlog.encode(m.ProduceRequest(Topic="t", Value=b"hi", Acks=1)) + mlog.encode_frame(29, b"{}")
    first, second = inspect_mlog(data)
    assert first == Seen(
        position=0,
        size=43,
        name="ProduceRequest",
        code="2",
        content={"Topic": "t", "Value": "aGk=", "Acks": 1},
    )
    assert second.problem == "protocol: can not encode type: 29"


def test_kafka_requests() -> None:
    body = struct.pack(">hhih", 18, 0, 7, 4) + b"kcat"
    asked: dict[int, Asked] = {}
    (seen,) = inspect_kafka_requests(struct.pack(">i", len(body)) + body, asked)
    assert (seen.name, seen.code) == ("ApiVersionsRequest v0", "18")
    assert seen.content["client_id"] == "kcat"
    assert asked == {7: Asked(18, 0)}


def zmtp(*messages: list[bytes]) -> bytes:
    data = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL".ljust(54 + 1, b"\0")
    data = data[:64].ljust(64, b"\0")
    data += b"\x04\x06\x05READY"
    for frames in messages:
        for index, frame in enumerate(frames):
            more = index < len(frames) - 1
            long = len(frame) > 255
            data += bytes([more | long << 1]) + struct.pack(">Q" if long else ">B", len(frame)) + frame
    return data


def test_logjam_messages_inside_zmtp() -> None:
    body = b'{"action":"' + b"x" * 400 + b'"}'
    meta = Meta(compression=Compression.SNAPPY, created_ms=5, sequence=6)
    message = build_data(b"a-b", b"logs", compress(Compression.SNAPPY, body), meta)
    seen = list(inspect_logjam(zmtp([b"", *message], [b"a-b", b"202 Accepted"], [b"a-b", b"logs", b"{}", b"bad"])))
    assert [each.name for each in seen] == ["greeting", "command READY", "data", "frames", "data"]
    assert seen[0].content == {"version": "3.1", "mechanism": "NULL"}
    assert seen[2].content["body"] == body.decode()
    assert (seen[2].content["compression"], seen[2].content["wants_reply"]) == ("snappy", True)
    assert seen[3].content == ["a-b", "202 Accepted"]
    assert seen[4].problem is not None


@pytest.mark.parametrize("cut", [10, 63, 64, 66, 75, 90])
def test_a_cut_logjam_capture_never_breaks_the_inspector(cut: int) -> None:
    data = zmtp([b"", b"a-b", b"logs", b"{}", bytes(24)])
    assert all(isinstance(each, Seen) for each in inspect_logjam(data[:cut]))


def test_the_command_exits_with_1_when_a_frame_has_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(rustlog.encode(r.Ping()))
    bad.write_bytes(rustlog.encode(r.Ping())[:-1])
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "rustlog", str(good)])
    assert ended.value.code in (0, None)
    assert "Ping 0x0a" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "rustlog", str(bad), "--json"])
    assert ended.value.code == 1
    assert '"problem"' in capsys.readouterr().out
