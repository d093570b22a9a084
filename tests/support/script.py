"""Scripts for machines: commands, and below each the trace that came out of it.

`play` gives the commands back with what really came out, `expected` the text of a test in the same form, so that a test
is one comparison and its failure shows the first line that differs. Lines that begin with `#` are for the reader.
"""

from typing import Protocol


class Scripted(Protocol):
    """A machine that takes its events as lines of text."""

    def play(self, line: str) -> list[str]: ...


def play(scripted: Scripted, script: str) -> str:
    lines: list[str] = []
    for line in script.strip().splitlines():
        line = line.strip()
        if not line or line.startswith((">", "#")):
            continue
        lines.append(line)
        lines += [f"  > {each}" for each in scripted.play(line)]
    return "\n".join(lines)


def expected(script: str) -> str:
    lines = [line.strip() for line in script.strip().splitlines()]
    return "\n".join(f"  {line}" if line.startswith(">") else line for line in lines if line and line[0] != "#")
