"""Whoever issues tokens: a key of its own, the file with its public half, and tokens for anybody."""

import json
import time
from pathlib import Path
from typing import Any

from joserfc import jws, jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

ISSUER = "https://login.mill.example"
AUDIENCE = "headrace"


class Issuer:
    def __init__(self, directory: Path, *, key: RSAKey | ECKey | None = None, name: str = "first") -> None:
        self.key = key or ECKey.generate_key("P-256", {"kid": name, "use": "sig"})
        self.jwks = directory / "jwks.json"
        self.publish(self.key)

    def publish(self, *keys: RSAKey | ECKey) -> None:
        self.jwks.write_text(json.dumps(KeySet(list(keys)).as_dict(private=False)))

    @property
    def settings(self) -> dict[str, str]:
        return {
            "security.oauth.jwks.file": str(self.jwks),
            "security.oauth.issuer": ISSUER,
            "security.oauth.audience": AUDIENCE,
        }

    # Any: whatever JSON has
    def token(
        self, name: str, *, now_s: float | None = None, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """For `name`, for an hour; claims that are given as None are left out."""
        now_s = time.time() if now_s is None else now_s
        said = {"iss": ISSUER, "aud": AUDIENCE, "sub": name, "iat": int(now_s), "exp": int(now_s) + 3600, **claims}
        algorithm = "RS256" if isinstance(self.key, RSAKey) else "ES256"
        return jwt.encode(
            {"alg": algorithm, "kid": self.key.kid, **(header or {})},
            {claim: value for claim, value in said.items() if value is not None},
            self.key,
            registry=jws.JWSRegistry(strict_check_header=False),
        )
