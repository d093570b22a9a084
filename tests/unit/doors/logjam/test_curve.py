"""Files of keys: what is taken, and what stops the start without telling the key."""

from pathlib import Path

import pytest
import zmq

from headrace.broker.access.words import Principal
from headrace.doors.logjam.curve import read_clients, read_secret
from headrace.errors import Invalid

PUBLIC = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
OTHER = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"


def test_each_line_is_a_key_and_who_it_is(tmp_path: Path) -> None:
    path = tmp_path / "clients"
    path.write_text(f"{PUBLIC} User:agents\n\n  {OTHER}  User:night watch  \n")
    assert read_clients(path) == {PUBLIC: Principal("agents"), OTHER: Principal("night watch")}


@pytest.mark.parametrize(
    "text", [PUBLIC, f"{PUBLIC} agents", f"{PUBLIC[1:]} User:a", f"{PUBLIC} User:a\n{PUBLIC} User:b", "\x00"]
)
def test_lines_that_say_something_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "clients"
    path.write_text(text)
    with pytest.raises(Invalid):
        read_clients(path)


def test_a_secret_key_is_one_and_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "key"
    _, secret = zmq.curve_keypair()
    path.write_bytes(secret + b"\n")
    assert read_secret(path) == secret
    for wrong in (secret[:-1], b"", secret + b"x", b"\xff" * 40):
        path.write_bytes(wrong)
        with pytest.raises(Invalid) as caught:
            read_secret(path)
        assert secret[:8].decode() not in str(caught.value)
