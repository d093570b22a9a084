"""Who the bearer of a token is: signed JWTs (RFC 7519) as OAUTHBEARER carries them, by the keys of one file.

- Only the keys of the file count, whatever a token says about where its key is. A symmetric key in it is refused: what has to be
  told to brokers is told to too many, and a public key must never be taken for one.
- `iss`, `aud` and `exp` are asked for and compared; a token without them is nobody's.
- The file is read again when it has changed. One that cannot be read is said, and the former keys stay.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, RSAKey

from headrace.broker.access.settings import SecuritySettings
from headrace.broker.access.users import check_user_name
from headrace.errors import Denied, Fault, Invalid

TOKEN_BYTES_MAX: Final = 16 * 1024
JWKS_BYTES_MAX: Final = 1024 * 1024
_KEYS_MAX: Final = 100
_RSA_BITS_MIN: Final = 2048
_SKEW_S: Final = 30
"""By how much the clock of whoever signs may be ahead of ours."""
_OF_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ALGORITHMS: Final = (*_OF_RSA, *_OF_CURVE.values())
"""Neither `none` nor anything with a shared secret."""

log = structlog.get_logger(__name__)


class Bearer(msgspec.Struct, frozen=True):
    name: str
    expires_ms: int


class Tokens:
    """Made once for a node; `read` may be called from any thread."""

    def __init__(self, settings: SecuritySettings) -> None:
        assert settings.oauth_jwks_file is not None
        assert settings.oauth_issuer is not None
        assert settings.oauth_audience is not None
        self._file = Path(settings.oauth_jwks_file)
        self._issuer = settings.oauth_issuer
        self._audience = settings.oauth_audience
        self._claim = settings.oauth_principal_claim
        self._registry = jws.JWSRegistry(algorithms=list(ALGORITHMS))
        self._reading = threading.Lock()
        try:
            self._stamp = self._look()
            self._keys = read_keys(self._file)
        except (OSError, Invalid) as error:
            raise Fault(f"security.oauth.jwks.file: {self._file}: {error}") from error

    def read(self, token: str, now_ms: int) -> Bearer:
        """Raises `Denied`; what it says has nothing of the token in it."""
        if len(token) > TOKEN_BYTES_MAX:
            raise Denied(f"a token of {len(token)} characters; {TOKEN_BYTES_MAX} are possible")
        self._refresh()
        keys = self._keys
        try:
            claims = jwt.decode(
                token, lambda found: _key_for(keys, found.headers()), list(ALGORITHMS), self._registry
            ).claims
        except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise Denied(f"the token is not signed by a key we know: {type(error).__name__}") from error
        return self._bearer(claims, now_ms)

    # Any: what JSON has
    def _bearer(self, claims: Mapping[str, Any], now_ms: int) -> Bearer:
        if claims.get("iss") != self._issuer:
            raise Denied("the token is from another issuer")
        audience = claims.get("aud")
        if self._audience not in (audience if isinstance(audience, list) else [audience]):
            raise Denied("the token is for another audience")
        expires_s = _seconds(claims, "exp")
        if expires_s is None or expires_s * 1000 <= now_ms:
            raise Denied("the token is over, or says not until when it holds")
        begins_s = [_seconds(claims, name) for name in ("nbf", "iat") if name in claims]
        if any(each is None or each > now_ms / 1000 + _SKEW_S for each in begins_s):
            raise Denied("the token does not hold yet")
        name = claims.get(self._claim)
        if not isinstance(name, str):
            raise Denied(f"the token has no {self._claim}")
        try:
            check_user_name(name)
        except Invalid as error:
            raise Denied(str(error)) from error
        return Bearer(name, int(expires_s * 1000))

    def _refresh(self) -> None:
        with self._reading:
            try:
                stamp = self._look()
                if stamp == self._stamp:
                    return
                self._stamp = stamp
                self._keys = read_keys(self._file)
            except (OSError, Invalid) as error:
                log.error("keys of tokens not read, the former ones stay", path=str(self._file), reason=str(error))
            else:
                log.info("keys of tokens read anew", path=str(self._file), count=len(self._keys))

    def _look(self) -> tuple[int, int]:
        found = self._file.stat()
        return found.st_mtime_ns, found.st_size


def read_keys(path: Path) -> Sequence[RSAKey | ECKey]:
    """Public keys, from a JSON Web Key Set (RFC 7517). Raises `Invalid` and `OSError`."""
    with path.open("rb") as file:
        text = file.read(JWKS_BYTES_MAX + 1)
    if len(text) > JWKS_BYTES_MAX:
        raise Invalid(f"larger than {JWKS_BYTES_MAX} bytes")
    try:
        found = KeySet.import_key_set(msgspec.json.decode(text)).keys
    except (JoseError, msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Invalid("not a JSON Web Key Set") from error
    keys: list[RSAKey | ECKey] = []
    for key in found:
        if key.get("use", "sig") != "sig":
            continue
        if (isinstance(key, RSAKey) and key.public_key.key_size >= _RSA_BITS_MIN) or (
            isinstance(key, ECKey) and key.curve_name in _OF_CURVE
        ):
            keys.append(key)
        else:
            raise Invalid(
                f"key {key.kid!r}: only RSA of {_RSA_BITS_MIN} bits and more, and EC of {', '.join(_OF_CURVE)}, are taken"
            )
    if not 1 <= len(keys) <= _KEYS_MAX:
        raise Invalid(f"{len(keys)} keys for signatures; 1 to {_KEYS_MAX} are possible")
    return keys


# Any: what JSON has
def _key_for(keys: Sequence[RSAKey | ECKey], header: Mapping[str, Any]) -> RSAKey | ECKey:
    """The one that the token names, or the only one that fits. Raises `Denied`."""
    named = header.get("kid")
    fitting = [
        key
        for key in keys
        if header.get("alg") in _algorithms(key)
        and key.get("alg", header.get("alg")) == header.get("alg")
        and (named is None or key.kid == named)
    ]
    if len(fitting) != 1:
        raise Denied("the token is not signed by a key we know")
    return fitting[0]


def _algorithms(key: RSAKey | ECKey) -> Sequence[str]:
    return _OF_RSA if isinstance(key, RSAKey) else (_OF_CURVE[key.curve_name],)


# Any: what JSON has
def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    """A time; None where there is none, or what is there is none."""
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found) or found > 2**53:
        return None
    return float(found)
