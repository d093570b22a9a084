"""Every error we can raise has words in every JSON door's language, and in Logjam's two."""

from collections.abc import Iterator

import pytest

from headrace import errors
from headrace.doors.logjam.errors import status_of
from headrace.doors.mlog import errors as mlog
from headrace.doors.rustlog import errors as rustlog
from headrace.wire.mlog.codes import ErrorCode as MlogCode


def leaves(kind: type[errors.HeadraceError]) -> Iterator[type[errors.HeadraceError]]:
    children = [child for child in kind.__subclasses__() if child.__module__ == "headrace.errors"]
    if not children:
        yield kind
    for child in children:
        yield from leaves(child)


LEAVES = sorted(leaves(errors.HeadraceError), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: kind.__name__)
def test_rustlog_blames_the_client_for_what_it_must_change(kind: type[errors.HeadraceError]) -> None:
    code = rustlog.code_of(kind("x"))
    assert (400 <= code < 500) is issubclass(kind, errors.Rejected)
    assert code != 500


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: kind.__name__)
def test_mlog_has_a_code_and_keeps_the_words(kind: type[errors.HeadraceError]) -> None:
    answer = mlog.answer_to(kind("the words"))
    assert answer.code in set(MlogCode)
    assert answer.message == "the words"


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: kind.__name__)
def test_logjam_says_400_to_what_is_wrong(kind: type[errors.HeadraceError]) -> None:
    expected = b"400 Bad Request" if issubclass(kind, errors.Rejected) else b"202 Accepted"
    assert status_of(kind("x")) == expected


def test_what_nobody_foresaw_is_not_repeated_to_strangers() -> None:
    assert mlog.answer_to(RuntimeError("a password")).message == "internal error"
