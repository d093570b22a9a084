"""Whose a token is, and everything that makes it nobody's."""

import base64
import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey
from tests.support.tokens import AUDIENCE, ISSUER, Issuer

from headrace.broker.access.settings import SecuritySettings
from headrace.broker.access.tokens import TOKEN_BYTES_MAX, Tokens
from headrace.errors import Denied, Fault

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000


def tokens_of(issuer: Issuer, **settings: str) -> Tokens:
    return Tokens(
        SecuritySettings(oauth_jwks_file=str(issuer.jwks), oauth_issuer=ISSUER, oauth_audience=AUDIENCE, **settings)  # type: ignore[arg-type]
    )


def encoded(part: bytes | dict[str, Any]) -> str:  # Any: whatever JSON has
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def test_a_token_says_who_and_until_when(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    tokens = tokens_of(issuer)
    bearer = tokens.read(issuer.token("alice", now_s=NOW_S), NOW_MS)
    assert (bearer.name, bearer.expires_ms) == ("alice", NOW_MS + 3_600_000)
    assert tokens.read(issuer.token("alice", now_s=NOW_S, aud=["other", AUDIENCE]), NOW_MS).name == "alice"
    named = tokens_of(issuer, oauth_principal_claim="preferred_username")
    assert named.read(issuer.token("7", now_s=NOW_S, preferred_username="alice"), NOW_MS).name == "alice"


def test_keys_of_rsa_will_do(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, key=RSAKey.generate_key(2048, {"kid": "rsa"}))
    assert tokens_of(issuer).read(issuer.token("alice", now_s=NOW_S), NOW_MS).name == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://elsewhere.example"},
        {"iss": None},
        {"iss": [ISSUER]},
        {"aud": "other"},
        {"aud": None},
        {"aud": []},
        {"aud": f"{AUDIENCE} other"},
        {"exp": NOW_S},
        {"exp": None},
        {"exp": "never"},
        {"exp": True},
        {"exp": 1e400},
        {"nbf": NOW_S + 3600},
        {"nbf": "later"},
        {"iat": NOW_S + 3600},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": ["alice"]},
        {"sub": "alice\n"},
    ],
    ids=str,
)
def test_claims_that_make_a_token_nobodys(tmp_path: Path, claims: dict[str, Any]) -> None:  # Any: whatever JSON has
    issuer = Issuer(tmp_path)
    with pytest.raises(Denied):
        tokens_of(issuer).read(issuer.token("alice", now_s=NOW_S, **claims), NOW_MS)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS256", "HS512", "dir", "RS1"])
def test_algorithms_that_prove_nothing(tmp_path: Path, algorithm: str) -> None:
    """`none`, and the public key as a shared secret: in its PEM, its DER and its JSON."""
    issuer = Issuer(tmp_path, key=RSAKey.generate_key(2048, {"kid": "rsa"}))
    tokens = tokens_of(issuer)
    _, payload, signature = issuer.token("alice", now_s=NOW_S).split(".")
    signed = f"{encoded({'alg': algorithm, 'kid': 'rsa'})}.{payload}"
    secrets = [issuer.key.as_pem(private=False), issuer.key.as_der(private=False), issuer.jwks.read_bytes(), b""]
    forged = [encoded(hmac.digest(secret, signed.encode(), hashlib.sha256)) for secret in secrets]
    for proof in ("", signature, *forged):
        with pytest.raises(Denied):
            tokens.read(f"{signed}.{proof}", NOW_MS)


def test_a_token_does_not_choose_its_key(tmp_path: Path) -> None:
    (tmp_path / "mallory").mkdir()
    issuer = Issuer(tmp_path)
    mallory = Issuer(tmp_path / "mallory", name="first")
    tokens = tokens_of(issuer)
    for header in (
        {},
        {"kid": None},
        {"kid": "second"},
        {"kid": ["first"]},
        {"jwk": mallory.key.as_dict(private=False)},
        {"jku": "http://127.0.0.1:1/jwks.json"},
        {"x5u": "http://127.0.0.1:1/"},
    ):
        kept = {"kid": "first", **header}
        with pytest.raises(Denied):
            # Signed by hand: the library refuses to write some of these itself.
            tokens.read(_signed_by(mallory, kept), NOW_MS)


def _signed_by(issuer: Issuer, header: dict[str, Any]) -> str:  # Any: whatever JSON has
    plain = issuer.token("alice", now_s=NOW_S)
    _, payload, signature = plain.split(".")
    return f"{encoded({'alg': 'ES256', **header})}.{payload}.{signature}"


def test_a_changed_payload_is_nobodys(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    head, payload, signature = issuer.token("alice", now_s=NOW_S).split(".")
    other = issuer.token("admin", now_s=NOW_S).split(".")[1]
    for forged in (
        f"{head}.{other}.{signature}",
        f"{head}.{payload}.",
        f"{head}.{payload}",
        "",
        ".",
        "..",
        "a.b.c",
        "é.b.c",
    ):
        with pytest.raises(Denied):
            tokens_of(issuer).read(forged, NOW_MS)


def test_a_token_is_not_longer_than_it_may_be(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    with pytest.raises(Denied, match="are possible"):
        tokens_of(issuer).read(issuer.token("alice", now_s=NOW_S, padding="x" * TOKEN_BYTES_MAX), NOW_MS)


def test_what_is_said_of_a_refused_token_has_nothing_of_it(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    token = issuer.token("alice", now_s=NOW_S, iss="https://elsewhere.example")
    for each in (token, token[:-4] + "AAAA"):
        with pytest.raises(Denied) as caught:
            tokens_of(issuer).read(each, NOW_MS)
        assert not any(part in str(caught.value) for part in (*each.split("."), "elsewhere"))


def test_keys_are_read_anew_and_bad_ones_change_nothing(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    tokens = tokens_of(issuer)
    old = issuer.token("alice", now_s=NOW_S)
    issuer.jwks.write_text("not a key set")
    assert tokens.read(old, NOW_MS).name == "alice"
    next_key = ECKey.generate_key("P-256", {"kid": "second"})
    issuer.publish(next_key)
    os.utime(issuer.jwks, ns=(1, 1))  # Another stamp, however coarse the clock of the disk is.
    with pytest.raises(Denied):
        tokens.read(old, NOW_MS)
    issuer.key = next_key
    assert tokens.read(issuer.token("alice", now_s=NOW_S), NOW_MS).name == "alice"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": []}', '{"keys": [7]}'])
def test_files_that_are_no_keys_stop_the_start(tmp_path: Path, text: str) -> None:
    issuer = Issuer(tmp_path)
    issuer.jwks.write_text(text)
    with pytest.raises(Fault, match=r"security\.oauth\.jwks\.file"):
        tokens_of(issuer)


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
def test_keys_that_prove_nothing_stop_the_start(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    for key in (OctKey.generate_key(256), RSAKey.generate_key(1024), ECKey.generate_key("secp256k1")):
        issuer.jwks.write_text(json.dumps(KeySet([key]).as_dict(private=isinstance(key, OctKey))))
        with pytest.raises(Fault, match="only RSA"):
            tokens_of(issuer)
