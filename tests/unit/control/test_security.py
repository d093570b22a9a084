"""Access entries are followed in the order of their changes, and a change is in force when its maker is told."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.support.logs import turn_of_the_loop

from headrace.control import keys
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Delete, Put, only
from headrace.control.security import SecurityChange, SecurityEntries

A, B = "/security/acls/a", "/security/acls/b"


class Followed:
    def __init__(self, store: EmbeddedMetastore) -> None:
        self.store = store
        self.entries: dict[str, bytes] = {}
        self.history: list[tuple[str, bytes | None]] = []
        self.security = SecurityEntries(store, apply=self.apply, changed=lambda: None)

    def apply(self, key: str, value: bytes | None) -> None:
        self.history.append((key, value))
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value


@pytest.fixture
async def followed() -> AsyncIterator[Followed]:
    store = await EmbeddedMetastore.open()
    await store.txn((), (Put(A, b"1"),))
    found = Followed(store)
    await found.security.load()
    following = asyncio.create_task(found.security.follow())
    yield found
    following.cancel()
    await store.close()


async def test_what_was_there_is_known_after_loading(followed: Followed) -> None:
    assert followed.entries == {A: b"1"}


async def test_a_change_is_in_force_when_it_is_made(followed: Followed) -> None:
    await followed.security.change(lambda: SecurityChange(puts={A: b"2", B: b"3"}))
    assert followed.entries == {A: b"2", B: b"3"}
    await followed.security.change(lambda: SecurityChange(deletes=[A]))
    assert followed.entries == {B: b"3"}
    # Each change once, in order: what was taken away did not come back for a moment.
    assert followed.history[1:] == [(A, b"2"), (B, b"3"), (A, None)]


async def test_many_changes_at_once_all_come_to_an_end(followed: Followed) -> None:
    def putting(n: int) -> Callable[[], SecurityChange]:
        return lambda: SecurityChange(puts={f"/security/acls/{n % 7}": b"%d" % n})

    await asyncio.gather(*(followed.security.change(putting(n)) for n in range(50)))
    stored = await followed.store.range(keys.SECURITY)
    assert followed.entries == {item.key: item.value for item in stored.items}
    assert len(followed.entries) == 8


async def test_what_others_write_is_heard_of(followed: Followed) -> None:
    await followed.store.txn((), (Put(B, b"theirs"), Delete(only(A))))
    for _ in range(100):
        if followed.entries == {B: b"theirs"}:
            break
        await turn_of_the_loop()
    assert followed.entries == {B: b"theirs"}


async def test_of_two_that_change_one_thing_the_second_decides_anew(followed: Followed) -> None:
    """Both begin with what there is; nothing that either has said is lost."""

    def appending(word: bytes) -> Callable[[], SecurityChange]:
        return lambda: SecurityChange(puts={A: followed.entries[A] + word})

    await asyncio.gather(*(followed.security.change(appending(b" %d" % n)) for n in range(20)))
    assert sorted(followed.entries[A].split()) == sorted([b"1", *(b"%d" % n for n in range(20))])


async def test_a_change_that_somebody_else_has_overtaken_waits_until_it_knows(followed: Followed) -> None:
    def delete_what_there_is() -> SecurityChange:
        return SecurityChange(deletes=[key for key in (A, B) if key in followed.entries])

    theirs = followed.store.txn((), (Put(B, b"theirs"), Delete(only(A))))
    await asyncio.gather(theirs, followed.security.change(delete_what_there_is))
    assert followed.entries == {}


async def test_reading_all_anew_forgets_what_has_gone_meanwhile(followed: Followed) -> None:
    others = Followed(followed.store)
    await others.security.load()
    await followed.security.change(lambda: SecurityChange(puts={B: b"2"}, deletes=[A]))
    await others.security.load()
    assert others.entries == {B: b"2"}
