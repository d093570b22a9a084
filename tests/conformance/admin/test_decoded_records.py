"""Values of a topic that has a schema, as the API, the console and the command line show them; and those that do not fit it."""

import base64
import json

import httpx
import pytest
from tests.support.node import NodeProcess

from headrace.cli.main import main

SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "what", "type": "string"}],
}
PLAIN = bytes.fromhex("feffffffffffffffff01") + b"\x14<b>tea</b>"
"""Made by hand from the specification: the greatest long, and text that would like to be markup."""
FRAMED = bytes.fromhex("0000000007") + b"\x02\x04ab"
STRANGE = b"\x02\xfe\xff\xff"
"""A length of bytes that are not there."""


@pytest.fixture
def orders(name: str, api: httpx.Client) -> str:
    config = {"value.schema.type": "avro", "value.schema": json.dumps(SCHEMA)}
    made = api.post("/topics", json={"name": name, "partitions": 1, "config": config})
    assert made.status_code == 200, made.text
    for value in (PLAIN, FRAMED, STRANGE):
        body = {"value": {"data": base64.b64encode(value).decode(), "encoding": "base64"}}
        assert api.post(f"/topics/{name}/records", json=body).status_code == 200
    assert api.post(f"/topics/{name}/records", json={}).status_code == 200  # A tombstone.
    return name


def test_the_api_gives_json_beside_the_bytes(orders: str, api: httpx.Client) -> None:
    rows = api.get(f"/topics/{orders}/records", params={"start": "oldest"}).json()["data"]["records"]
    decoded = [row["decoded"] for row in rows]
    assert [None if each is None else each["json"] for each in decoded] == [
        '{"id":9223372036854775807,"what":"<b>tea</b>"}',
        '{"id":1,"what":"ab"}',
        "",
        None,
    ]
    assert "are announced" in decoded[2]["reason"]
    assert [base64.b64decode(row["value"]["data"]) for row in rows[1:3]] == [FRAMED, STRANGE]
    one = api.get(f"/topics/{orders}/partitions/0/records/1").json()["data"]
    assert one["decoded"] == {"type": "avro", "json": '{"id":1,"what":"ab"}', "reason": "", "is_cut": False}


def test_the_console_shows_it_as_text(orders: str, node: NodeProcess) -> None:
    with httpx.Client(base_url=f"http://{node.endpoints['admin']}") as browser:
        page = browser.get(f"/topics/{orders}?start=oldest").text
        assert "9223372036854775807" in page
        assert "<b>tea" not in page
        assert "&lt;b&gt;tea" in page
        one = browser.get(f"/topics/{orders}/0/0").text
        assert "9223372036854775807" in one
        assert "<b>tea" not in one
        strange = browser.get(f"/topics/{orders}/0/2").text
        assert "are announced" in strange
        assert "02 fe ff ff" in strange


def consumed(node: NodeProcess, capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[bytes, bytes]:
    with pytest.raises(SystemExit) as ended:
        main(["consume", *arguments, "--from-beginning", "--no-follow", "--bootstrap", node.kafka])
    assert ended.value.code == 0
    return capsysbinary.readouterr()


def test_the_command_line_prints_it(orders: str, node: NodeProcess, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    out, err = consumed(node, capsysbinary, orders)
    first, second = b'{"id":9223372036854775807,"what":"<b>tea</b>"}', b'{"id":1,"what":"ab"}'
    assert out == first + b"\n" + second + b"\n" + STRANGE + b"\n\n"
    assert f"{orders}/0/2 is not shown by the avro schema".encode() in err
    out, _ = consumed(node, capsysbinary, orders, "--format", "json")
    assert [json.loads(line)["value"] for line in out.splitlines()] == [
        {"id": 2**63 - 1, "what": "<b>tea</b>"},
        {"id": 1, "what": "ab"},
        {"base64": base64.b64encode(STRANGE).decode()},
        None,
    ]
    out, err = consumed(node, capsysbinary, orders, "--raw")
    assert out == PLAIN + b"\n" + FRAMED + b"\n" + STRANGE + b"\n\n"
    assert err == b""


def test_a_broken_schema_is_refused_and_the_one_before_stays(orders: str, api: httpx.Client) -> None:
    refused = api.patch(f"/topics/{orders}/configs", json={"set": {"value.schema": '{"type": "array"}'}})
    assert refused.status_code == 400
    assert "value.schema:" in refused.json()["error"]["message"]
    assert "has no items" in refused.json()["error"]["message"]
    config = api.get(f"/topics/{orders}").json()["data"]["config"]
    assert json.loads(config["value.schema"]) == SCHEMA
    gone = api.patch(f"/topics/{orders}/configs", json={"unset": ["value.schema", "value.schema.type"]})
    assert gone.status_code == 200
    rows = api.get(f"/topics/{orders}/records").json()["data"]["records"]
    assert [row["decoded"] for row in rows] == [None] * 4


def test_many_large_values_of_one_page_are_decoded_only_so_far(name: str, api: httpx.Client) -> None:
    config = {"value.schema.type": "avro", "value.schema": '"string"'}
    assert api.post("/topics", json={"name": name, "config": config}).status_code == 200
    length = 8000
    value = bytes([length << 1 & 0x7F | 0x80, length >> 6]) + b"x" * length
    body = {"value": {"data": base64.b64encode(value).decode(), "encoding": "base64"}}
    for _ in range(140):
        assert api.post(f"/topics/{name}/records", json=body).status_code == 200
    rows = api.get(f"/topics/{name}/records", params={"limit": 500}).json()["data"]["records"]
    assert [bool(row["decoded"]["json"]) for row in rows] == [True] * 131 + [False] * 9
    assert "too much" in rows[-1]["decoded"]["reason"]
