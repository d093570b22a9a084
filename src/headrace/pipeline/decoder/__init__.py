"""Record batches to Arrow, vectorised.

`decode` takes bytes in which whole batches lie back to back (an object's range, a fetch response) and gives Arrow
record batches of the columns asked for. CRCs are always verified, control batches and aborted transactions never come
out, a batch that its producer sent unreadable comes out whole, and what a codec may inflate to is bounded. Two kernels do the walking, `compiled` (C) and `vector` (numpy), and
one set of property tests covers both.
"""

from headrace.pipeline.decoder.arrow import UNREADABLE_HEADER, Columns, decode
from headrace.pipeline.decoder.columns import ARROW_FIELDS
from headrace.pipeline.decoder.sections import AbortedTransaction, Inflated, Isolation

__all__ = ["ARROW_FIELDS", "UNREADABLE_HEADER", "AbortedTransaction", "Columns", "Inflated", "Isolation", "decode"]
