"""Deploying and deleting, against resources that keep a log."""

from dataclasses import replace

import pytest

from specinfer.deploy.endpoint import delete, deploy, teardown
from specinfer.deploy.errors import DeployError
from specinfer.deploy.plan import EndpointPlan

PLAN = EndpointPlan(
    name="specinfer", image="repository:1", role_arn="arn:role", model_s3_uri="s3://bucket/one/"
)


def run(plan, resources):
    said = []
    deploy(plan, resources, said.append)
    return said


def test_first_deployment_makes_all_three_and_waits(resources):
    said = run(PLAN, resources)
    assert [what for what, _ in resources.log] == ["create", "create", "create", "InService"]
    assert said[:3] == [str(call) for call in PLAN.calls()]


def test_same_plan_again_makes_nothing(resources):
    run(PLAN, resources)
    resources.log.clear()
    run(PLAN, resources)
    assert [what for what, _ in resources.log] == ["InService"]


def test_another_plan_updates_the_endpoint_that_is_there(resources):
    run(PLAN, resources)
    resources.log.clear()
    changed = replace(PLAN, image="repository:2")
    run(changed, resources)
    assert [what for what, _ in resources.log] == ["create", "create", "update", "InService"]
    endpoint = resources.Endpoint.get(endpoint_name="specinfer")
    assert endpoint.endpoint_config_name == changed.calls()[1].arguments["endpoint_config_name"]


def test_teardown_leaves_nothing(resources):
    run(PLAN, resources)
    calls = teardown("specinfer", resources)
    assert [call.resource for call in calls] == ["Endpoint", "EndpointConfig", "Model"]
    delete(calls, resources, print)
    assert not resources.Endpoint.items | resources.EndpointConfig.items | resources.Model.items


def test_teardown_of_an_endpoint_that_is_not_there_says_so(resources):
    with pytest.raises(DeployError, match="no endpoint nothing"):
        teardown("nothing", resources)


def test_an_endpoint_that_fails_is_an_error_with_its_reason(resources):
    class FailedError(Exception):
        pass

    class Failing(type(resources.Endpoint)):
        def create(self, **arguments):
            item = super().create(**arguments)

            def wait(status, timeout=None):
                raise FailedError("the container did not answer /ping")

            item.wait_for_status = wait
            return item

    resources.Endpoint = Failing("endpoint_name", resources.log)
    with pytest.raises(DeployError, match="did not answer /ping"):
        run(PLAN, resources)
