"""Nodes forked from a process that has loaded what a node needs: of the second that a start takes, loading is most.

A forked node is a process of its own, as one that was started by a command line: killed, stopped and waited for alike. It differs in
one thing, that its modules were there before it was. So whatever changes what is loaded (another program, a variable that is
looked at while loading) is started by a command line still.

`python -m tests.support.forked_nodes` takes orders over standard input, a socket: a message for each node, with the socket over
which that node is kept and the file for its output. A keeper between both says the node's id and how it ended. The id stays the
node's own until whoever ordered it has let go of it, and the node ends with whoever ordered it.
"""

import functools
import importlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.cli import main as cli

COMMANDS: Final = ("up", "broker", "controller")
"""Those for which everything is loaded."""
ROOT: Final = Path(__file__).resolve().parents[2]
_ORDER_BYTES_MAX: Final = 128 * 1024
_NUMBER: Final = struct.Struct(">i")
_LOADED: Final = (
    *(f"headrace.cli.commands.{name}" for name in COMMANDS),
    "headrace.node.node",
    "headrace.node.broker",
    "headrace.node.controller",
)
_LOOKED_AT_WHILE_LOADING: Final = ("PYTHON", "HEADRACE_", "LD_", "MALLOC_", "GLIBC_")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    arguments: list[str]
    environment: dict[str, str]
    directory: str


class ForkedNode:
    """What tests use of `subprocess.Popen`, of a process whose parent is somebody else."""

    def __init__(self, keeper: socket.socket) -> None:
        self._keeper = keeper
        self.returncode: int | None = None
        self.pid = self._said()

    def _said(self) -> int:
        number: int = _NUMBER.unpack(self._keeper.recv(_NUMBER.size))[0]
        return number

    def poll(self) -> int | None:
        if self.returncode is None and self._has_ended(0):
            self.returncode = self._said()
            self._keeper.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._has_ended(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("a forked node", timeout or 0.0)
        return code

    def _has_ended(self, timeout: float | None) -> bool:
        # Not `select`, which knows the first thousand descriptors alone.
        waiting = select.poll()
        waiting.register(self._keeper, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else timeout * 1000))

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_node(arguments: Sequence[str], environment: Mapping[str, str], log: int) -> ForkedNode | None:
    """`headrace` with these arguments; None if it would have been loaded differently."""
    if _when_loading(environment) != _when_loading(os.environ):
        return None
    order = Order(arguments=list(arguments), environment=dict(environment), directory=str(Path.cwd()))
    ours, keepers = socket.socketpair()
    with keepers:
        socket.send_fds(_loaded().orders, [msgspec.json.encode(order)], [keepers.fileno(), log])
    return ForkedNode(ours)


def _when_loading(environment: Mapping[str, str]) -> dict[str, str]:
    # Output that is held back would be lost with a node that is killed; `_Loaded` sees to that.
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_LOOKED_AT_WHILE_LOADING) and name != "PYTHONUNBUFFERED"
    }


class _Loaded:
    """The process that has loaded everything. It ends with this one."""

    def __init__(self) -> None:
        self.orders, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked_nodes"],
                stdin=theirs.fileno(),
                cwd=ROOT,
                # The second as `headrace up` sets it before it loads the rest: gRPC looks at it while it is loaded.
                env={**os.environ, "PYTHONUNBUFFERED": "1", "GRPC_ENABLE_FORK_SUPPORT": "0"},
                # Ctrl-C is for the tests; nodes end with them.
                start_new_session=True,
            )


_loaded = functools.cache(_Loaded)


def _serve(orders: socket.socket) -> bool:
    """True in a process that has become a node; False when no more are wanted."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES_MAX, 2)
        if not message:
            return False
        status, log = descriptors
        if os.fork() == 0:
            orders.close()
            return _keep(msgspec.json.decode(message, type=Order), socket.socket(fileno=status), log)
        os.close(status)
        os.close(log)
        _forget_keepers()


def _forget_keepers() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _keep(order: Order, status: socket.socket, log: int) -> bool:
    process_id = os.fork()
    if process_id == 0:
        status.close()
        _become(order, log)
        return True
    os.close(log)
    try:
        status.send(_NUMBER.pack(process_id))
        descriptor = os.pidfd_open(process_id)
        if status.fileno() in select.select([descriptor, status.fileno()], [], [])[0]:
            os.kill(process_id, signal.SIGKILL)
        ended = os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        status.send(_NUMBER.pack(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status))
        status.recv(1)
    except OSError:
        os.kill(process_id, signal.SIGKILL)
    os.waitpid(process_id, 0)
    os._exit(0)


def _become(order: Order, log: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, standard)
    os.close(nothing)
    os.close(log)
    os.chdir(order.directory)
    os.environ.clear()
    os.environ.update(order.environment)
    sys.argv[1:] = order.arguments


def main() -> None:
    orders = socket.socket(fileno=os.dup(0))
    for module in _LOADED:
        importlib.import_module(module)
    if _serve(orders):
        cli.main()


if __name__ == "__main__":
    main()
