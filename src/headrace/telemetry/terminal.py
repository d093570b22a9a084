"""Text that strangers chose, on its way to a terminal: what would move the cursor, or worse, is shown instead of obeyed."""


def printable(text: str, *, keep: str = "") -> str:
    r"""`text` with everything that is not printable as Python writes it (`\x1b`), but for the characters in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
