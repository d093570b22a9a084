"""KIP-320: a client says which leader epoch it believes in, and hears when it is behind or ahead (trap 17)."""

from headrace.broker.topics import PartitionLog
from headrace.errors import StaleEpoch, UnknownEpoch


def check_epoch(partition: PartitionLog, believed_epoch: int) -> None:
    """-1 skips the check."""
    if believed_epoch < 0 or believed_epoch == partition.leader_epoch:
        return
    if believed_epoch < partition.leader_epoch:
        raise StaleEpoch(f"epoch {believed_epoch}, this leader's is {partition.leader_epoch}")
    raise UnknownEpoch(f"epoch {believed_epoch} is newer than this leader's {partition.leader_epoch}")
