"""What an operator should look at now, in words: the board behind `/health`.

A part that finds something wrong puts a sentence up under a key of its own, and takes it down once it is mended. One
key, one sentence: saying it again replaces it. The board holds facts, it decides nothing, and it is only changed from
the event loop.
"""


class Problems:
    """Standing problems, oldest first."""

    __slots__ = ("_standing",)

    def __init__(self) -> None:
        self._standing: dict[str, str] = {}

    def raise_problem(self, key: str, sentence: str) -> None:
        self._standing[key] = sentence

    def clear(self, key: str) -> None:
        """Take it down; nothing happens where it does not stand."""
        self._standing.pop(key, None)

    def standing(self) -> tuple[str, ...]:
        return tuple(self._standing.values())
