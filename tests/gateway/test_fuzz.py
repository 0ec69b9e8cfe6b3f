"""Whatever JSON comes in, the fault is the caller's and is told in the route's words."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specinfer_gateway.dialects import DIALECTS

NAMES = [
    "messages", "prompt", "inputs", "parameters", "role", "content", "type", "text", "stream",
    "max_tokens", "max_new_tokens", "temperature", "top_k", "top_p", "seed", "stop", "n", "user",
    "do_sample", "stream_options", "max_completion_tokens", "model",
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["user", "text", "system"])
)


def nested(children):
    return st.lists(children, max_size=3) | st.dictionaries(
        st.sampled_from(NAMES), children, max_size=4
    )


JSON = st.recursive(SCALARS, nested, max_leaves=12)
BODIES = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(dialect=st.sampled_from(DIALECTS), body=BODIES)
def test_no_body_is_a_fault_of_the_gateway(caller, dialect, body):
    reply = caller.post(dialect.route, body)
    assert reply.status in (200, 400, dialect.invalid, 413)
    if reply.status != 200:
        problem = reply.json if dialect.invalid == 422 else reply.json["error"]
        assert problem["code"]


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(max_size=40) | BODIES.map(lambda body: json.dumps(body)[:-1]))
def test_no_text_is_a_fault_of_the_gateway(caller, text):
    reply = caller.send(caller.event("POST", "/generate", text))
    assert reply.status in (400, 422)
