"""Python functions whose rules a C kernel must not pass over: whoever changes one is sent to look at the kernel.

A kernel does the common case and knows nothing of the rules behind it (`docs/kernels.md`). A check that is added to the
Python path therefore needs a decision: does it make things "not plain", is it about bytes that the kernel looks at too, or
does it not concern the common case at all? No comparison of the two finds a check that the comparison does not provoke. So
the text of each function is remembered here, without its comments.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, Final

import pytest

from headrace.broker.produce import Produce
from headrace.doors import connection
from headrace.doors.kafka.handlers import produce
from headrace.log.partition import PartitionLog
from headrace.log.producers import Producers
from headrace.log.store import LogStore
from headrace.log.tail import Tail
from headrace.log.wal.writer import WalWriter
from headrace.records import batch

TWINS: Final[dict[Callable[..., Any], str]] = {  # Any: functions of all kinds
    PartitionLog.append: "32cac3ffc64f",
    PartitionLog._append_any: "3e5d9a8968a8",
    PartitionLog._append_sound: "d682c5051bdf",
    PartitionLog._take: "b809c2dfd7b1",
    PartitionLog.note_producer: "8b8438a355db",
    PartitionLog.wait: "0731d8370c24",
    Producers.check: "e5f937e1138a",
    Producers.note: "a8b798a5ad37",
    LogStore.can_take: "67e711376b4a",
    Tail.place: "8adca56f18b5",
    Tail.add: "e50681e04ecf",
    WalWriter.append: "f91b9e3b2d23",
    WalWriter.wait: "76fc90d96dca",
    Produce.append: "fb106da508e2",
    batch.check_batch: "0a7855b58940",
    produce.handle: "4296b4efb80d",
    produce._Reply.append: "e4dc9762df30",
    produce._partition: "5a316541f9ea",
    connection.FramedConnection._process: "46d0d9de05d6",
    connection.FramedConnection.flush: "c45403205b3f",
}


def fingerprint(function: Callable[..., Any]) -> str:
    """Of what it does; comments, docstrings and layout may change."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:12]


@pytest.mark.parametrize("function", TWINS, ids=lambda each: each.__qualname__)
def test_a_change_of_a_twin_was_held_against_its_kernel(function: Callable[..., Any]) -> None:
    assert fingerprint(function) == TWINS[function], (
        f"{function.__qualname__} has changed. See in docs/kernels.md which kernel does its common case. If the change is a"
        " new check, make it part of what is plain, or of the kernel, or convince yourself that no common case needs it;"
        " then write the new fingerprint here."
    )
