"""The environment: every variable checked, the wrong one named."""

import pytest

from specinfer_gateway.errors import SettingsError
from specinfer_gateway.settings import from_environment

GOOD = {"SPECINFER_ENDPOINT": "e"}


def test_values_have_the_field_s_type():
    settings = from_environment(
        GOOD | {"SPECINFER_CACHE_TTL_SECONDS": "60", "SPECINFER_SINGLE_FLIGHT": "false"}
    )
    assert (settings.cache_ttl_seconds, settings.single_flight) == (60, False)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"SPECINFER_ENDPOINT": ""}, "SPECINFER_ENDPOINT"),
        ({"SPECINFER_CACHE_TTL_SECONDS": "soon"}, "SPECINFER_CACHE_TTL_SECONDS"),
        ({"SPECINFER_CACHE_TTL_SECONDS": "-1"}, "SPECINFER_CACHE_TTL_SECONDS"),
        ({"SPECINFER_SINGLE_FLIGHT": "maybe"}, "SPECINFER_SINGLE_FLIGHT"),
        ({"SPECINFER_CACHE_TABLE": "t"}, "SPECINFER_MODEL_REVISION"),
        ({"SPECINFER_JOBS_TABLE": "t"}, "SPECINFER_ASYNC_ENDPOINT"),
        ({"SPECINFER_ENDPOIMT": "e", "AWS_LAMBDA_FUNCTION_NAME": "f"}, "SPECINFER_ENDPOIMT"),
    ],
)
def test_a_wrong_variable_is_named(more, named):
    with pytest.raises(SettingsError, match=named):
        from_environment(GOOD | more)


def test_without_an_endpoint_there_is_no_gateway():
    with pytest.raises(SettingsError, match="SPECINFER_ENDPOINT"):
        from_environment({})


def test_outside_lambda_the_engines_variables_are_left_alone():
    assert from_environment(GOOD | {"SPECINFER_CACHE": "/tmp"}).endpoint == "e"
