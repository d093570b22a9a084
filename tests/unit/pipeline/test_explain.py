import pytest

from headrace.errors import NotFound
from headrace.pipeline.explain import brief

PROXY = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error \
occurred in the user provided function in foreach batch sink. Reason: An exception was raised by the Python Proxy. Return \
Message: Traceback (most recent call last):
  File "py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "queries.py", line 163, in call
{cause}
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
"""
WORKER = """pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "writer.py", line 9, in write
{cause}"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            PROXY.format(cause="OSError: [Errno 28] No space left on device"),
            "OSError: [Errno 28] No space left on device",
        ),
        (PROXY.format(cause="pyiceberg.exceptions.ServerError: 503: try later"), "ServerError: 503: try later"),
        (PROXY.format(cause=WORKER.format(cause="RuntimeError: broke")), "RuntimeError: broke"),
        (PROXY.format(cause=WORKER.format(cause="KeyError")), "KeyError"),
        (PROXY.format(cause="headrace.errors.NotFound: no table x"), "no table x"),
        (PROXY.format(cause=WORKER.format(cause="headrace.errors.Corrupted: object y")), "object y"),
        ("[PARSE] no such thing\n\nmore", "[PARSE] no such thing"),
    ],
)
def test_an_error_of_the_python_proxy_shows_its_cause(text: str, said: str) -> None:
    assert brief(RuntimeError(text)) == said


def test_our_own_errors_speak_for_themselves() -> None:
    assert brief(NotFound("no table x")) == "no table x"
