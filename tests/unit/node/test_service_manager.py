import socket
from pathlib import Path

import pytest

from headrace.node.service_manager import ServiceManager


@pytest.fixture
def listening(tmp_path: Path) -> tuple[socket.socket, str]:
    path = str(tmp_path / "notify")
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(path)
    receiver.settimeout(60)
    return receiver, path


def test_the_manager_is_told_and_children_do_not_inherit_its_address(listening: tuple[socket.socket, str]) -> None:
    receiver, path = listening
    environ = {"NOTIFY_SOCKET": path, "HOME": "/"}
    manager = ServiceManager(environ)
    assert environ == {"HOME": "/"}
    with receiver:
        manager.ready()
        assert receiver.recv(100) == b"READY=1"
        manager.stopping()
        assert receiver.recv(100) == b"STOPPING=1"


def test_an_abstract_address_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")  # Linux chooses an abstract one.
        receiver.settimeout(60)
        name = receiver.getsockname()
        ServiceManager({"NOTIFY_SOCKET": "@" + name[1:].decode()}).ready()
        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_nobody_to_tell_is_no_reason_to_fail(environ: dict[str, str]) -> None:
    ServiceManager(environ).ready()
