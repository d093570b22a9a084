"""`headrace cluster up`: controllers and brokers on this machine, by one command."""

import asyncio
import fcntl
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from cyclopts import Parameter, validators

from headrace.cli.cluster_files import Home, LocalCluster
from headrace.cli.greeting import cluster_greeting
from headrace.cli.output import note, say
from headrace.cli.supervisor import Supervisor
from headrace.errors import Conflict


def up(
    *,
    nodes: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=32))] = 3,
    metastore: Home = "sqlite",
    etcd_endpoints: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    data_dir: Path | None = None,
    ephemeral: Annotated[bool, Parameter(negative="")] = False,
    set_: Annotated[list[str] | None, Parameter(name=["--set", "-s"], negative="")] = None,
) -> int:
    """Run a cluster on this machine until SIGTERM or Ctrl-C. DATA_DIR/endpoints.json appears once every broker serves.

    Each process has a directory below DATA_DIR and its log in DATA_DIR/logs; one that dies is started again. Everything listens on
    loopback: the first broker at the usual ports, each further one a hundred above.

    Parameters
    ----------
    nodes:
        How many brokers.
    metastore:
        `sqlite`: one controller with a file, which is no quorum. `etcd`: three controllers, and three etcd members unless
        --etcd-endpoints names some.
    etcd_endpoints:
        `host:port` of each member of an etcd that runs already.
    data_dir:
        Directory of everything: objects, metadata, WALs, logs; `./cluster` unless said otherwise.
    ephemeral:
        Free ports in place of the usual ones, and, without --data-dir, a directory that is removed at the end.
    set_:
        KEY=VALUE for every broker. Can be given more than once.
    """
    os.umask(0o077)
    with ExitStack() as stack:
        if ephemeral and data_dir is None:
            data_dir = Path(stack.enter_context(TemporaryDirectory(prefix="headrace-", ignore_cleanup_errors=True)))
            note(f"ephemeral data in {data_dir}")
        directory = data_dir or Path("cluster")
        _hold(directory, stack)
        cluster = LocalCluster(
            directory,
            brokers=nodes,
            home=metastore,
            has_free_ports=ephemeral,
            etcd_endpoints=etcd_endpoints or (),
            settings=set_ or (),
        )
        stages = cluster.stages()
        if metastore == "sqlite":
            note("one controller with a SQLite file: no quorum, for development and small sites")
        stack.callback(cluster.withdraw)
        asyncio.run(_supervise(cluster, Supervisor(stages)))
    return 0


async def _supervise(cluster: LocalCluster, supervisor: Supervisor) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)

    def greet() -> None:
        brokers = cluster.publish()
        if sys.stdout.isatty():
            say(cluster_greeting(brokers))

    await supervisor.run(greet)


def _hold(directory: Path, stack: ExitStack) -> None:
    """One supervisor for one directory."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    stack.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise Conflict(f"the cluster in {directory} is running already") from error
