"""The first administrator, made in a browser: an address with a number that is good once, while there is no user at all.

Whoever starts the node sees it on their terminal, or in a file that only they can read. It is in no log.
"""

import hmac
from pathlib import Path
from typing import Final

from headrace.broker.access.service import Access
from headrace.chance import SYSTEM_CHANCE
from headrace.errors import Denied

FILE_NAME: Final = "first-login"


class FirstLogin:
    def __init__(self, access: Access, directory: Path | None = None) -> None:
        self._access = access
        self._token = SYSTEM_CHANCE.randbytes(24).hex()
        self._file = None if directory is None else directory / FILE_NAME
        self._is_used = False

    @property
    def is_possible(self) -> bool:
        return not self._is_used and not len(self._access.users) and not self._access.users.not_understood

    def address(self, console: str) -> str:
        """`console` is the address of its first page."""
        return f"{console}login?first={self._token}"

    def offer(self, console: str, *, is_needed: bool) -> Path | None:
        """Write the address down for whoever may read the data directory; None where it is not needed, and then the file goes."""
        if self._file is None:
            return None
        self._file.unlink(missing_ok=True)
        if not is_needed or not self.is_possible:
            return None
        self._file.touch(mode=0o600)
        self._file.write_text(self.address(console) + "\n")
        return self._file

    def check(self, token: str) -> None:
        """Raises `Denied` unless it is the one, and there is nobody yet."""
        is_right = hmac.compare_digest(token.encode(), self._token.encode())
        if not is_right or not self.is_possible:
            raise Denied("this address is not good any more: it was for the first user, once")

    async def make(self, token: str, user: str, password: str) -> None:
        """An administrator of that name. Nobody comes in by this number again, whatever becomes of it."""
        self.check(token)
        self._is_used = True
        try:
            await self._access.ensure_administrator(user, password)
        except BaseException:
            self._is_used = False
            raise
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def read_first_login(directory: Path) -> str:
    """The address that the node of this data directory has written down; empty where there is none."""
    try:
        return (directory / FILE_NAME).read_text().strip()
    except OSError:
        return ""
