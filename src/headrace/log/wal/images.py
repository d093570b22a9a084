"""Memory for groups on their way to the disk: as direct I/O takes it, and used again.

A batch is copied into its group's image when it is appended, while the cache of the loop's core has it. The flusher runs on
another core and would fetch every line of it from there, which takes several times as long as the copy.
"""

from typing import Final

from headrace.aligned import fresh_pages

IMAGE_SIZE: Final = 8 * 1024 * 1024
"""Of the largest usual group. Only what is filled takes memory."""
_KEPT_MAX: Final = 8
"""As many as may wait for the disk before producers do. Fresh memory costs twice the copy into it."""


class Images:
    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def take(self, size: int = IMAGE_SIZE) -> memoryview:
        """Room for a group of `size` bytes, with whatever was in it before."""
        if size <= IMAGE_SIZE and self._free:
            return self._free.pop()
        return memoryview(fresh_pages(max(size, IMAGE_SIZE)))

    def give_back(self, image: memoryview) -> None:
        if len(image) == IMAGE_SIZE and len(self._free) < _KEPT_MAX:
            self._free.append(image)
