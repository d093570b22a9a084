"""Disks made of files: a filesystem to cut the power of (what was not flushed is not in the file), and a bare device."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

IMAGE_BYTES = 256 * 1024 * 1024
_COPIES_MAX = 20


def missing_for_mounts() -> str | None:
    """Why this machine cannot mount loop images or tmpfs; None when it can."""
    if os.geteuid() != 0:
        return "mounting a filesystem needs root"
    for tool in ("mkfs.ext4", "losetup", "mount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    probe = subprocess.run(["losetup", "-f"], capture_output=True, check=False)
    if probe.returncode != 0:
        return f"no loop devices: {probe.stderr.decode().strip()}"
    return None


class DiskImage:
    """One image at a time, mounted at one place."""

    def __init__(self, directory: Path) -> None:
        self.mount_point = directory / "disk"
        self.mount_point.mkdir()
        self._directory = directory
        self._number = 0
        with self._path.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._path))
        self._mount()

    @property
    def _path(self) -> Path:
        return self._directory / f"image{self._number}"

    def _mount(self) -> None:
        # The journal's own timer would write behind our back, now and then, what nobody asked to be flushed.
        _run("mount", "-o", "loop,commit=300", str(self._path), str(self.mount_point))

    def snapshot(self) -> Path:
        """What the disk has right now. The writer is stopped; only the kernel's own write-back can disturb us."""
        copy = self._directory / f"image{self._number + 1}"
        for _ in range(_COPIES_MAX):
            before = self._path.stat().st_mtime_ns
            _run("cp", "--sparse=always", str(self._path), str(copy))
            if self._path.stat().st_mtime_ns == before:
                return copy
        raise AssertionError("the image never stood still")

    def power_on(self) -> None:
        """Go on with the snapshot: the old image, with all that was flushed later, is gone."""
        self.unmount()
        self._path.unlink()
        self._number += 1
        self._mount()

    def unmount(self) -> None:
        _run("umount", str(self.mount_point))


@contextlib.contextmanager
def loop_device(image: Path, size: int, *, sector_size: int = 512) -> Iterator[Path]:
    """A blank block device of `size` bytes, which are kept in `image`."""
    with image.open("xb") as file:
        file.truncate(size)
    device = _run("losetup", "--find", "--show", "--sector-size", str(sector_size), str(image)).strip()
    try:
        yield Path(device)
    finally:
        _run("losetup", "--detach", device)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
