"""What RustLog calls a topic name: letters, digits, `_` and `-`, 1 to 255 of them.

Topics made through other doors may have dots; RustLog reads and writes those, and refuses only to create them.
"""

import re
from typing import Final

_CREATABLE: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_ADDRESSABLE: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")


def is_creatable(topic: str) -> bool:
    return _CREATABLE.fullmatch(topic) is not None


def is_addressable(topic: str) -> bool:
    """Could some door have made a topic of this name?"""
    return _ADDRESSABLE.fullmatch(topic) is not None
