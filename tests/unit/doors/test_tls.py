"""Subjects as Java writes them, and Kafka's rules for what they mean."""

import pytest

from headrace.doors.tls import distinguished_name, map_name, parse_rule
from headrace.errors import Denied, Invalid

SUBJECT = {
    "subject": (
        (("countryName", "DE"),),
        (("organizationName", 'Mill, "Inc" + <x>;\\'),),
        (("organizationalUnitName", " spaced "),),
        (("commonName", "#alice"),),
    )
}


def test_a_subject_is_written_most_specific_first_and_escaped() -> None:
    assert distinguished_name(SUBJECT) == ('CN=\\#alice,OU=\\ spaced\\ ,O=Mill\\, \\"Inc\\" \\+ \\<x\\>\\;\\\\,C=DE')


def mapped(name: str, *rules: str) -> str:
    return map_name(name, [parse_rule(each) for each in rules])


def test_rules_are_those_of_kafka() -> None:
    # From the documentation of ssl.principal.mapping.rules.
    rules = (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
        "DEFAULT",
    )
    assert mapped("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", *rules) == "serviceuser"
    assert mapped("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", *rules) == "adminuser@admin"
    assert mapped("O=Mill,cn=Bob", *rules) == "bob"
    assert mapped("O=Mill", *rules) == "O=Mill"
    assert mapped("CN=bob", "RULE:^CN=(.*)$/$1/U") == "BOB"
    assert mapped("CN=bob") == "CN=bob"


def test_a_name_that_no_rule_maps_is_nobodys() -> None:
    with pytest.raises(Denied):
        mapped("CN=bob", "RULE:^OU=(.*)$/$1/")


@pytest.mark.parametrize("text", ["", "RULE:", "RULE:a/b", "RULE:(/x/", "RULE:a/b/X", "default"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_rule(text)
