"""Where the ring is, and what lies beside it."""

from pathlib import Path
from typing import Final

from headrace.errors import Invalid
from headrace.log.settings import LogSettings

WAL_FILE_NAME: Final = "ring"
_BESIDE_DEVICE: Final = "wal-device"
"""In the data directory: what would lie beside the ring if that were a file."""
_DEVICES: Final = Path("/dev")
_SHARED_MEMORY: Final = _DEVICES / "shm"


def wal_paths(settings: LogSettings, data_dir: Path) -> tuple[Path, Path]:
    """The directory beside the ring, and the ring. `wal.path` names a directory, or the file or device itself."""
    path = Path(settings.wal_path)
    if path.is_block_device():
        return data_dir / _BESIDE_DEVICE, path
    if path.is_file():
        return path.parent, path
    if path.is_relative_to(_DEVICES) and not path.is_relative_to(_SHARED_MEMORY):
        # A directory made here would be a new ring, gone with the next boot, while the real one waits for its disk.
        raise Invalid(f"wal.path is {path}, and there is no such block device")
    return path, path / WAL_FILE_NAME
