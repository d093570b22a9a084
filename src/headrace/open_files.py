"""How many files may be open, and how many of them connections may have.

Every listener asks here, whatever it speaks: a flood of connections to any of them must not keep the node from uploading or
from taking a checkpoint.
"""

import resource
import sys
from typing import Final

FILES_RESERVED: Final = 256
"""Left to the node itself."""


def files_for_connections() -> int:
    """A connection whose file has this number or a higher one is turned away.

    The lowest free number is always taken, so the number tells how many are open.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft - min(FILES_RESERVED, soft // 4)
