"""What an operator does about the WAL of a broker that is gone: bring it to another one, or give it up."""

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headrace.cli.cluster_members import PATIENCE_S, Config, Controllers, controllers_of, with_store
from headrace.cli.output import say
from headrace.errors import Conflict, Invalid, NotFound

_NETWORK_FILE_SYSTEMS: Final = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "glusterfs", "lustre", "fuse")
_MOUNTS: Final = Path("/proc/self/mounts")
_LOOK_S: Final = 0.2
_DONE_S: Final = 600.0


def give_up_wal(
    broker: str,
    *,
    accept_loss: Annotated[bool, Parameter(negative="")] = False,
    config: Config = None,
    controllers: Controllers = None,
) -> None:
    """Let the `wal` partitions of a broker go on without the records that only its disk has. They are lost for good.

    Only for a disk that does not come back. A broker that is restarted on its disk loses nothing, and neither does one whose volume is attached
    elsewhere: see `headrace broker adopt`. Offsets go on above all that can have been given out, and consumers pass over what is missing. Refused
    until the broker was not heard for 66 s: a broker that hears no controller goes on for a minute.

    Parameters
    ----------
    broker:
        The broker's `broker.id`, as `headrace cluster describe` shows it.
    accept_loss:
        Says that you know it.
    config:
        Settings file of any broker: it says where the controllers are, and how nodes prove who they are.
    controllers:
        `host:port` of each controller, where they ask for no proof.
    """
    if not accept_loss:
        raise Invalid(
            f"records that only the WAL of {broker} has would be lost for good. If its disk is really gone, say so with --accept-loss; "
            "if it can be attached to another machine, `headrace broker adopt` loses nothing"
        )
    count = asyncio.run(_give_up(broker, config, controllers))
    say(f"the WAL of {broker} is given up: {count} partitions go on without what only it had")


async def _give_up(broker: str, config: Path | None, controllers: list[str] | None) -> int:
    from headrace.clock import SystemClock
    from headrace.control.membership import Membership

    membership = Membership(controllers_of(config, controllers), broker, clock=SystemClock())
    try:
        return await membership.give_up_wal(patience_s=PATIENCE_S)
    finally:
        await membership.close()


def adopt_wal(directory: Path, owner: str, settings: Any) -> None:  # Any: settings are loaded late
    """Have the broker of `settings`, which runs here, take over the WAL of `owner` that lies in `directory`."""
    check_local(directory, mounts=_MOUNTS.read_text())
    count, taker = asyncio.run(_adopt(directory.resolve(), owner, settings))
    say(f"{count} partitions that were in the WAL of {owner} are led by {taker}; nothing of it is needed any more")


async def _adopt(directory: Path, owner: str, settings: Any) -> tuple[int, str]:
    from headrace.clock import SystemClock
    from headrace.config.identity import broker_id
    from headrace.control.membership import Membership
    from headrace.log.wal.paths import WAL_FILE_NAME

    taker = broker_id(settings.server)
    controllers = settings.control.as_controllers()
    ring_id = await with_store(controllers, lambda store: _ring_of(store, directory, owner))
    membership = Membership(controllers, taker, clock=SystemClock())
    try:
        count = await membership.adopt(
            owner, ring_id=ring_id, wal_path=str(directory / WAL_FILE_NAME), patience_s=PATIENCE_S
        )
    finally:
        await membership.close()
    await with_store(controllers, lambda store: _await_done(store, owner, taker, ring_id))
    return count, taker


async def _ring_of(store: Any, directory: Path, owner: str) -> bytes:
    """The ring below `directory` that has records of `owner`."""
    from headrace.clock import SystemClock
    from headrace.control.cluster import Cluster
    from headrace.control.wal_plans import rings_of
    from headrace.disk import OS_DISK
    from headrace.log import homes

    there = {homes.ring_in(home, OS_DISK) for home in homes.homes(directory, OS_DISK)} - {None}
    if not there:
        raise NotFound(f"there is no WAL in {directory}: it is the directory that `wal.path` of {owner} named")
    needed = rings_of((await Cluster.load(store, SystemClock())).topics, owner)
    if not needed:
        raise NotFound(f"no partition is in a WAL of {owner}: object storage has everything")
    found = there & needed
    if not found:
        raise Conflict(f"the WAL in {directory} is not the one that has records of {owner}")
    return min(each for each in found if each is not None)


async def _await_done(store: Any, owner: str, taker: str, ring_id: bytes) -> None:
    from headrace.control.takeovers import Takeovers

    takeovers = Takeovers(store)
    try:
        async with asyncio.timeout(_DONE_S):
            while True:
                known = await takeovers.read(owner)
                if known is None or known.value.is_done or known.value.ring_id != ring_id:
                    return
                if taker in known.value.refused_by:
                    raise Conflict(f"broker {taker} could not read the WAL of {owner}; its log says why")
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise Conflict(f"broker {taker} is still at it; its log says how far it has come") from error


def check_local(directory: Path, *, mounts: str) -> None:
    """`Invalid` for a network file system: nobody can be sure that its owner does not write to it any more."""
    path = directory.resolve()
    if not path.is_dir():
        raise NotFound(f"there is no directory {directory}")
    best, kind = Path("/"), ""
    for line in mounts.splitlines():
        _, mounted_at, found, *_ = line.split(" ")
        at = Path(mounted_at.replace("\\040", " "))
        if path.is_relative_to(at) and len(at.parts) >= len(best.parts):
            best, kind = at, found
    if kind.partition(".")[0] in _NETWORK_FILE_SYSTEMS:
        raise Invalid(
            f"{directory} is on a network file system ({kind}): its owner may still write there unseen. "
            "Attach the disk itself to this machine"
        )
