import pickle

from pyspark import cloudpickle

from headrace.pipeline.tables.access import file_access
from headrace.pipeline.tables.writer import file_writer

SECRET = "AKIA-very-secret"
VENDED = {
    "s3.access-key-id": "id",
    "s3.secret-access-key": SECRET,
    "s3.session-token": "st-" + SECRET,
    "s3.endpoint": "e",
}


def test_credentials_arrive_and_are_readable_nowhere_on_the_way() -> None:
    access = file_access(VENDED)
    assert pickle.loads(pickle.dumps(access)).properties == VENDED
    assert SECRET not in repr(access)
    assert SECRET.encode() not in cloudpickle.dumps(file_writer("{}", access))


def test_what_only_the_catalog_needs_stays_with_the_driver() -> None:
    catalog = {
        "uri": "postgresql://u:p@h/db",
        "token": "t",
        "credential": "c",
        "auth.manager": object(),
        "oauth2-server-uri": "o",
    }
    assert file_access(VENDED | catalog).properties == VENDED


def test_a_signer_gets_the_address_and_the_token_it_signs_with() -> None:
    signed = {"s3.signer": "S3V4RestSigner", "uri": "https://catalog", "token": "t"}
    assert file_access(signed).properties == signed
