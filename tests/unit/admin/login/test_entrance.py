"""Who comes in at the admin port: by what they prove, by where they are, and how much trying costs."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest
from tests.support.metastores import ManualClock

from headrace.admin.login.attempts import DELAY_MAX_S, FORGOTTEN_MS, UNDER_WAY_PER_ADDRESS_MAX, Attempts
from headrace.admin.login.callers import Caller
from headrace.admin.login.entrance import Entrance, EntranceSettings
from headrace.admin.login.sessions import SESSIONS_MAX, SESSIONS_PER_USER_MAX
from headrace.admin.rights import Operation, Resource
from headrace.broker.access.audit import Audit
from headrace.broker.access.rules import Rule
from headrace.broker.access.service import Access
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.access.words import Operation as RuleOperation
from headrace.broker.access.words import Resource as RuleResource
from headrace.control.embedded import EmbeddedMetastore
from headrace.errors import Denied, Overloaded, Unauthenticated

HERE, THERE = "127.0.0.1", "10.0.0.9"
DAY_MS = 24 * 3_600_000


class Gatehouse:
    def __init__(self, access: Access, clock: ManualClock) -> None:
        self.access = access
        self.clock = clock

    def entrance(self, **settings: object) -> Entrance:
        return Entrance(self.access, EntranceSettings(**settings), self.clock)  # type: ignore[arg-type]  # a test's own


@pytest.fixture
async def house(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gatehouse]:
    """With a user `alice`, and no time lost on refusals."""
    store = await EmbeddedMetastore.open()
    clock = ManualClock()
    access = Access(SecuritySettings(authorization_enable=True), store, audit=Audit(clock, "test"))
    await access.load()
    following = asyncio.create_task(access.follow())
    verifiers = await access.users.new_verifiers("wood and water")
    await access.change_verifiers("alice", lambda _: verifiers)
    yield Gatehouse(access, clock)
    following.cancel()
    await store.close()


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each refusal would have waited."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("headrace.admin.login.entrance.asyncio.sleep", sleep)
    return found


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def name_of(asked: Awaitable[object]) -> str:
    return str(getattr(await asked, "name"))  # noqa: B009  # of a principal, whatever its type


async def test_without_a_login_only_this_machine_comes_in(house: Gatehouse) -> None:
    gate = house.entrance()
    for address in (HERE, "127.8.9.1", "::1"):
        assert await name_of(gate.principal_of(Caller(address=address))) == "User:ANONYMOUS"
    for address in (THERE, "192.168.1.7", "2001:db8::1", "", "localhost", "fe80::1%eth0"):
        with pytest.raises(Unauthenticated, match="this machine only"):
            await gate.principal_of(Caller(address=address))


async def test_an_open_listener_serves_anybody_as_its_principal(house: Gatehouse) -> None:
    assert await name_of(house.entrance(is_open=True).principal_of(Caller(address=THERE))) == "User:ANONYMOUS"
    named = house.entrance(is_open=True, principal="User:ops")
    assert await name_of(named.principal_of(Caller(address=THERE))) == "User:ops"


async def test_where_a_login_is_asked_this_machine_is_asked_too(house: Gatehouse) -> None:
    gate = house.entrance(is_login_asked=True, is_open=True)
    for address in (HERE, THERE):
        with pytest.raises(Unauthenticated, match="log in"):
            await gate.principal_of(Caller(address=address))


async def test_the_owner_and_a_certificate_need_no_password(house: Gatehouse) -> None:
    gate = house.entrance(is_login_asked=True)
    assert await name_of(gate.principal_of(Caller(address="", is_owner=True))) == "Owner:local"
    assert await name_of(gate.principal_of(Caller(address=THERE, certificate="User:CN=bob"))) == "User:CN=bob"


async def test_a_password_says_who_it_is_and_a_wrong_one_is_never_taken_for_none(
    house: Gatehouse, waited: list[float]
) -> None:
    gate = house.entrance()
    right = Caller(address=THERE, is_secure=True, authorization=basic("alice", "wood and water"))
    assert await name_of(gate.principal_of(right)) == "User:alice"
    for given in (basic("alice", "wrong"), basic("nobody", "x"), "Basic !!", "Digest x", "Basic " + "a" * 20_000):
        # From this machine, where nobody would have been asked.
        with pytest.raises(Unauthenticated):
            await gate.principal_of(Caller(address=HERE, authorization=given))
    assert len(waited) == 2, "those that could be compared cost a delay"


async def test_secrets_in_the_clear_are_refused_from_other_machines(house: Gatehouse) -> None:
    caller = Caller(address=THERE, authorization=basic("alice", "wood and water"))
    with pytest.raises(Denied, match="over TLS only"):
        await house.entrance().principal_of(caller)
    assert await name_of(house.entrance(is_plain_allowed=True).principal_of(caller)) == "User:alice"


async def test_a_right_password_is_hashed_once_and_another_password_ends_that(
    house: Gatehouse, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = house.entrance()
    caller = Caller(address=HERE, authorization=basic("alice", "wood and water"))
    await gate.principal_of(caller)
    hashed = []
    check = house.access.users.check_password

    async def counted(name: str, password: str) -> object:
        hashed.append(name)
        return await check(name, password)

    monkeypatch.setattr(house.access.users, "check_password", counted)
    await gate.principal_of(caller)
    assert hashed == []
    house.clock.advance(60_000)
    await gate.principal_of(caller)
    assert hashed == ["alice"]
    fresh = await house.access.users.new_verifiers("stone and flour")
    await house.access.change_verifiers("alice", lambda _: fresh)
    with pytest.raises(Unauthenticated):
        await gate.principal_of(caller)


async def test_a_token_is_its_users_until_it_is_over_revoked_or_the_user_goes(
    house: Gatehouse, waited: list[float]
) -> None:
    gate, access = house.entrance(is_login_asked=True), house.access
    made = [await access.make_token("alice", now_ms=house.clock.now_ms(), expires_ms=until) for until in (0, 0, 2**50)]
    short = await access.make_token("alice", now_ms=0, expires_ms=house.clock.now_ms() + 1)

    async def opens(text: str) -> bool:
        try:
            await gate.principal_of(Caller(address=HERE, authorization=f"Bearer {text}"))
        except Unauthenticated:
            return False
        return True

    assert [await opens(each.text) for each in (*made, short)] == [True] * 4
    swapped = made[0].text[:-64] + made[1].secret
    assert [await opens(text) for text in (swapped, made[0].text[:-1], "hr_", "hr_" + "0" * 16 + "_" + "0" * 64)] == [
        False
    ] * 4
    house.clock.advance(1)
    await access.revoke_token("alice", made[0].id)
    assert [await opens(each.text) for each in (*made, short)] == [False, True, True, False]
    # Another password leaves tokens as they are; they go with the user, and do not come back with one of the same name.
    fresh = await access.users.new_verifiers("stone and flour")
    await access.change_verifiers("alice", lambda _: fresh)
    assert await opens(made[1].text)
    await access.change_verifiers("alice", lambda _: {})
    assert not await opens(made[1].text)
    await access.change_verifiers("alice", lambda _: fresh)
    assert not await opens(made[1].text)
    assert not access.users.tokens("alice")


async def test_tokens_outlive_the_node_and_are_kept_as_digests(house: Gatehouse) -> None:
    made = await house.access.make_token("alice", now_ms=5, note="backup")
    other = Access(SecuritySettings(), house.access._stored._store)
    await other.load()
    assert other.users.owner_of(made, 6) == "alice"
    kept = other.users.tokens("alice")[made.id]
    assert (kept.note, kept.created_ms) == ("backup", 5)
    assert made.secret.encode() not in kept.digest
    assert made.secret not in repr(made)


async def test_a_session_ends_with_its_time_its_logout_and_its_password(house: Gatehouse) -> None:
    gate = house.entrance(is_login_asked=True, session_ms=DAY_MS)
    verifier = house.access.users.verifiers("alice")["SCRAM-SHA-512"]
    cookies = [gate.sessions.begin("alice", verifier, HERE) for _ in range(3)]

    def alive() -> list[bool]:
        return [gate.sessions.find(each) is not None for each in cookies]

    assert await name_of(gate.principal_of(Caller(address=HERE, session=cookies[0]))) == "User:alice"
    gate.sessions.end(cookies[0])
    assert gate.sessions.end_by_id(gate.sessions.all()[0].id)
    assert alive() == [False, True, False]
    with pytest.raises(Unauthenticated):
        await gate.principal_of(Caller(address=HERE, session=cookies[0]))
    fresh = await house.access.users.new_verifiers("stone and flour")
    await house.access.change_verifiers("alice", lambda _: fresh)
    assert alive() == [False] * 3
    late = gate.sessions.begin("alice", fresh["SCRAM-SHA-256"], HERE)
    house.clock.advance(DAY_MS)
    assert gate.sessions.find(late) is None
    assert gate.sessions.all() == []


async def test_sessions_are_bounded_for_a_user_and_in_all(house: Gatehouse) -> None:
    gate = house.entrance()
    verifier = house.access.users.verifiers("alice")["SCRAM-SHA-512"]
    cookies = [gate.sessions.begin("alice", verifier, HERE) for _ in range(SESSIONS_PER_USER_MAX + 1)]
    assert gate.sessions.find(cookies[0]) is None
    assert gate.sessions.find(cookies[1]) is not None
    for number in range(SESSIONS_MAX):
        gate.sessions.begin(f"user {number}", verifier, HERE)
    assert len(gate.sessions._open) == SESSIONS_MAX


async def test_refusals_wait_longer_each_time_and_are_noted_without_a_name(
    house: Gatehouse, waited: list[float]
) -> None:
    gate = house.entrance()
    for _ in range(8):
        with pytest.raises(Unauthenticated):
            await gate.principal_of(Caller(address=HERE, authorization=basic("hunter2", "x")))
    assert waited == sorted(waited)
    assert waited[0] == 0.2
    assert waited[-1] == DELAY_MAX_S
    assert gate.attempts.refused_total == 8
    assert house.access.audit is not None
    events = [event for event in house.access.audit.take() if b"login.refused" in event]
    assert len(events) == 8
    assert not any(b"hunter2" in event for event in events)
    # A right one, or time, makes good again.
    await gate.principal_of(Caller(address=HERE, authorization=basic("alice", "wood and water")))
    assert gate.attempts.refused(HERE) == 0.2


def test_one_address_has_few_logins_under_way_and_others_still_get_theirs() -> None:
    attempts = Attempts(ManualClock())
    held = [attempts.one(THERE) for _ in range(UNDER_WAY_PER_ADDRESS_MAX)]
    for each in held:
        each.__enter__()
    with pytest.raises(Overloaded), attempts.one(THERE):
        pass
    with attempts.one(HERE):
        pass
    held[0].__exit__(None, None, None)
    with attempts.one(THERE):
        pass


def test_old_refusals_are_forgotten() -> None:
    clock = ManualClock()
    attempts = Attempts(clock)
    assert [attempts.refused(HERE) for _ in range(2)] == [0.2, 0.4]
    clock.advance(FORGOTTEN_MS + 1)
    assert attempts.refused(HERE) == 0.2


async def test_the_first_administrator_is_made_once_and_only_where_there_is_nobody(tmp_path: Path) -> None:
    store = await EmbeddedMetastore.open()
    access = Access(SecuritySettings(authorization_enable=True), store)
    await access.load()
    following = asyncio.create_task(access.follow())
    first = Entrance(access, EntranceSettings(is_login_asked=True), ManualClock(), tmp_path).first
    path = first.offer("http://x/", is_needed=True)
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600
    token = path.read_text().strip().partition("?first=")[2]
    with pytest.raises(Denied):
        await first.make("0" * len(token), "root", "wood and water")
    await first.make(token, "root", "wood and water")
    assert not path.exists()
    with pytest.raises(Denied, match="once"):
        await first.make(token, "other", "wood and water")
    assert access.users.names() == ["root"]
    gate = Entrance(access, EntranceSettings(), ManualClock(), tmp_path)
    root = await gate.principal_of(Caller(address=HERE, authorization=basic("root", "wood and water")))
    assert gate.may(root, Operation.ALTER, Resource.CLUSTER, "kafka-cluster")
    # With somebody there nothing is offered, and what an earlier start has left goes.
    path.write_text("old")
    assert gate.first.offer("http://x/", is_needed=True) is None
    assert not path.exists()
    following.cancel()
    await store.close()


async def test_rules_hold_for_where_somebody_comes_from(house: Gatehouse) -> None:
    rule = Rule(
        resource=RuleResource.TOPIC,
        name="orders",
        principal="User:alice",
        operation=RuleOperation.READ,
        host=THERE,
    )
    await house.access.add_rules([rule])
    gate = house.entrance()
    for address, expected in ((THERE, True), (HERE, False), (f"::ffff:{THERE}", True)):
        caller = Caller(address=address, is_secure=True, authorization=basic("alice", "wood and water"))
        principal = await gate.principal_of(caller)
        assert gate.may(principal, Operation.READ, Resource.TOPIC, "orders") is expected


def test_nothing_that_opens_a_door_is_in_a_callers_words() -> None:
    caller = Caller(address=HERE, authorization=basic("alice", "secret"), session="0123")
    assert repr(caller) == "Caller(127.0.0.1)"
