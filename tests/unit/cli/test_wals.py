"""What is refused before anything is done about a WAL."""

from pathlib import Path

import pytest

from headrace.cli.wals import check_local, give_up_wal
from headrace.errors import Invalid, NotFound


def test_nothing_is_given_up_unless_the_loss_is_accepted() -> None:
    with pytest.raises(Invalid, match="--accept-loss"):
        give_up_wal("b", controllers=["127.0.0.1:1"])


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_wal_on_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    mounts = f"/dev/sda1 / ext4 rw 0 0\nserver:/export {tmp_path} {kind} rw 0 0\n"
    with pytest.raises(Invalid, match="network file system"):
        check_local(tmp_path, mounts=mounts)


def test_a_disk_of_this_machine_is_taken(tmp_path: Path) -> None:
    check_local(tmp_path, mounts=f"/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 {tmp_path} xfs rw 0 0\n")
    with pytest.raises(NotFound):
        check_local(tmp_path / "missing", mounts="/dev/sda1 / ext4 rw 0 0\n")
