"""SCRAM as RFC 7677 has it, and every hole that somebody else's has had."""

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.access.scram import Challenge, Verifier, read_first, salted_password, verifier_of
from headrace.broker.access.users import Users
from headrace.errors import Denied, HeadraceError, MalformedRequest
from headrace.wire.kafka.sasl import exchange

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def verifier(mechanism: str = "SCRAM-SHA-256", password: str = "pencil") -> Verifier:
    return verifier_of(mechanism, salted_password(mechanism, password, SALT, 4096), SALT, 4096)


def begun(first: bytes = FIRST, nonce: str = NONCE) -> Challenge:
    return Challenge("SCRAM-SHA-256", read_first(first), verifier(), nonce=nonce)


def test_the_exchange_of_the_rfc() -> None:
    challenge = begun()
    assert challenge.challenge == (
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert challenge.verify(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "a,b=c", "ümläut"])
def test_our_own_client_logs_in(mechanism: str, user: str) -> None:
    steps = exchange(mechanism, user, "pencil", nonce="abc")
    first = read_first(next(steps))
    assert first.user == user
    challenge = Challenge(mechanism, first, verifier(mechanism), nonce="def")
    proof = challenge.verify(steps.send(challenge.challenge.encode()))
    with pytest.raises(StopIteration):
        steps.send(proof)


def test_a_wrong_password_is_refused() -> None:
    steps = exchange("SCRAM-SHA-256", "user", "pencils", nonce="abc")
    challenge = begun(next(steps))
    with pytest.raises(Denied):
        challenge.verify(steps.send(challenge.challenge.encode()))


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(b"hNlF$k0", b"hNlF$k1"),  # another nonce
        FINAL.replace(
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b"r=rOprNGfwEbeRWgbNEkqO"
        ),  # only its own
        FINAL.replace(b"c=biws", b"c=eSws"),  # another header than it began with
        FINAL.replace(b"p=dHz", b"p=eHz"),
        FINAL.replace(b"AndVQ=", b""),
        FINAL[: FINAL.index(b"p=")] + b"p=" + base64.b64encode(bytes(32)),
        FINAL[: FINAL.index(b"p=")] + b"p=AAAA",
    ],
)
def test_what_does_not_prove_it_is_refused(final: bytes) -> None:
    with pytest.raises((Denied, MalformedRequest)):
        begun().verify(final)


def test_an_answer_is_good_for_one_challenge() -> None:
    begun().verify(FINAL)
    with pytest.raises(Denied):
        begun(nonce="another").verify(FINAL)


def test_nobody_logs_in_as_one_and_acts_as_another() -> None:
    assert read_first(b"n,a=user,n=user,r=x").user == "user"
    with pytest.raises(Denied):
        read_first(b"n,a=admin,n=user,r=x")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"p=tls-unique,,n=user,r=x",
        b"n,,n=,r=x",
        b"n,,n=u=s,r=x",
        b"n,,n=user",
        b"\xff",
        b"n,,n=u,r=" + b"x" * 9000,
    ],
)
def test_what_is_no_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_first(first)


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(HeadraceError):
        begun().verify(noise)
    with contextlib.suppress(HeadraceError):
        read_first(noise)


def test_unknown_users_are_told_a_steady_salt() -> None:
    users, others = Users(), Users()
    for each in (users, others):
        each.take_decoy(b"the cluster's own")
    first, again = users.verifier("nobody", "SCRAM-SHA-256"), others.verifier("nobody", "SCRAM-SHA-256")
    assert (first.salt, first.iterations) == (again.salt, again.iterations)
    assert first.salt != users.verifier("somebody", "SCRAM-SHA-256").salt
    assert len(first.salt) == 24
    # And cannot be logged in as: the keys are another random number each time.
    assert first.stored_key != again.stored_key


async def test_passwords_are_compared_beside_the_loop() -> None:
    users = Users()
    made = await users.new_verifiers("pencil")
    users._verifiers["alice"] = made
    assert await users.check_password("alice", "pencil") in made.values()
    for name, password in (("alice", "pencils"), ("bob", "pencil"), ("alice", "")):
        with pytest.raises(Denied):
            await users.check_password(name, password)


async def test_unknown_users_look_like_those_there_are() -> None:
    """The same iterations and as long a salt: otherwise a challenge tells who there is, and so does the time a password takes."""
    users = Users()
    for mechanism, real in (await users.new_verifiers("secret")).items():
        made_up = users.verifier("nobody", mechanism)
        assert (made_up.iterations, len(made_up.salt)) == (real.iterations, len(real.salt))
        assert (len(made_up.stored_key), len(made_up.server_key)) == (len(real.stored_key), len(real.server_key))
