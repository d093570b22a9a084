"""The pipeline beside a node that asks who somebody is: it takes a listener that does not, or it is said that there is none."""

from pathlib import Path

from headrace.blob.settings import ObjectStoreSettings
from headrace.doors.settings import ListenerSettings
from headrace.node.pipeline import PipelineBeside, plain_address

SECURED = ListenerSettings(name="kafka", door="kafka", listen="0.0.0.0:9092", sasl=("SCRAM-SHA-512",))
ENCRYPTED = ListenerSettings(name="tls", door="kafka", listen="0.0.0.0:9093", tls_certificate="c", tls_key="k")
INSIDE = ListenerSettings(name="inside", door="kafka", listen="127.0.0.1:9094", principal="User:inside")
ADDRESSES = {each.name: ("localhost", number) for number, each in enumerate((SECURED, ENCRYPTED, INSIDE))}


def test_the_first_listener_that_asks_for_nothing_is_taken() -> None:
    assert plain_address((SECURED, ENCRYPTED, INSIDE), ADDRESSES) == ("localhost", 2)
    assert plain_address((SECURED, ENCRYPTED), ADDRESSES) is None


def test_without_one_it_is_said_what_to_do() -> None:
    store = ObjectStoreSettings(type="local", local_path="objects")
    problem = PipelineBeside(kafka=None, store=store, data_dir=Path("data"), umask=0).start()
    assert problem is not None
    assert "cannot log in" in problem
    assert "pipeline.enable=false" in problem
