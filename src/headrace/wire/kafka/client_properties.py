"""What a client says to be let in, as files of properties have it: in librdkafka's names, or in those of Kafka's own clients.

Pure; where the text comes from is its reader's business. What is wrong is said without the line itself: it may be half a password.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.errors import Invalid

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS: Final = re.compile(r'\b(?P<name>username|password)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"')
_UNREADABLE: Final = ("ssl.truststore.location", "ssl.keystore.location")
"""Java's own files; those of type PEM are what everybody else has."""


class ClientSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """The same for all who connect. It holds a password: it is made where a connection is, and kept nowhere."""

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None
    checks_host: bool = True

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol}, {self.mechanism})"

    @property
    def is_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def is_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def librdkafka(self) -> dict[str, str]:
        """As librdkafka's settings."""
        settings = {
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism if self.is_sasl else None,
            "sasl.username": self.user if self.is_sasl else None,
            "sasl.password": self.password if self.is_sasl else None,
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.key,
            "ssl.key.password": self.key_password,
            "ssl.endpoint.identification.algorithm": None if self.checks_host else "none",
        }
        return {name: value for name, value in settings.items() if value is not None}


def parse_properties(text: str, where: str) -> dict[str, str]:
    """Raises `Invalid` for what is no property; what a property means is its reader's business."""
    properties = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, equals, value = stripped.partition("=")
        if not equals:
            raise Invalid(f"{where}, line {number}: expected KEY=VALUE")
        properties[key.strip()] = value.strip()
    return properties


def security_of(properties: Mapping[str, str]) -> ClientSecurity:
    """Raises `Invalid` for what cannot be meant, or cannot be done here."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise Invalid(f"security.protocol is one of {', '.join(PROTOCOLS)}")
    for name in _UNREADABLE:
        kind = properties.get(name.replace("location", "type"), "JKS").upper()
        if name in properties and kind != "PEM":
            raise Invalid(
                f"{name} is a file of type {kind}; only PEM is read here ({name.replace('location', 'type')}=PEM)"
            )
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    if protocol.startswith("SASL") and mechanism is None:
        raise Invalid("sasl.mechanism is missing, as SCRAM-SHA-512")
    jaas = {
        found["name"]: re.sub(r"\\(.)", r"\1", found["value"])
        for found in _JAAS.finditer(properties.get("sasl.jaas.config", ""))
    }
    keystore = properties.get("ssl.keystore.location")
    certificate = properties.get("ssl.certificate.location", keystore)
    return ClientSecurity(
        protocol=protocol,
        mechanism=mechanism,
        user=properties.get("sasl.username", jaas.get("username", "")),
        password=properties.get("sasl.password", jaas.get("password", "")),
        ca=properties.get("ssl.ca.location", properties.get("ssl.truststore.location")),
        certificate=certificate,
        key=properties.get("ssl.key.location", keystore),
        key_password=properties.get("ssl.key.password"),
        # Java writes an empty word for "do not look".
        checks_host=properties.get("ssl.endpoint.identification.algorithm", "https") not in ("", "none"),
    )
