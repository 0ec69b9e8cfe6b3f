"""The large stack's objects: valid for the API servers that will read them, and set as meant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from terraform_schema.kube import complaints
from terraform_schema.workspace import Applied, resources

ROOT = Path(__file__).parents[2]


def objects(stack_resources: Any) -> list[Any]:
    """Every object that the local chart would apply."""
    found: list[Any] = []
    for release in stack_resources:
        if release.type == "helm_release" and release.values["chart"].endswith("charts/objects"):
            (values,) = release.values["values"]
            found += yaml.safe_load(values)["objects"]
    return found


def of_kind(found: list[Any], kind: str) -> list[Any]:
    return [thing for thing in found if thing["kind"] == kind]


@pytest.fixture
def ray(large: Applied) -> list[Any]:
    return objects(large.resources)


@pytest.fixture
def deployment(with_deployment: Any) -> list[Any]:
    """The objects with a plain Deployment in place of Ray."""
    return objects(resources(with_deployment))


@pytest.fixture(scope="module")
def with_deployment(applied: Callable[[str], Applied]) -> Any:
    return applied("large").workspace.plan(
        "-refresh=false", "-var-file=example.tfvars", "-var=serving=deployment"
    )


def test_every_object_is_valid(ray: list[Any], deployment: list[Any]) -> None:
    assert len(ray) >= 9 and len(deployment) >= 11
    assert [c for thing in ray + deployment for c in complaints(thing)] == []


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("NodePool", ("spec", "template", "spec", "nodeClassRef"), {"name": "gpu"}),
        ("NodePool", ("spec", "disruption", "consolidateAfter"), "5 minutes"),
        ("NodePool", ("spec", "disruption", "consolidation"), "WhenEmpty"),
        ("NodePool", ("spec", "weight"), 101),
        ("EC2NodeClass", ("spec", "instanceStorePolicy"), "RAID1"),
        ("EC2NodeClass", ("spec", "amiSelectorTerm"), []),
        ("RayService", ("spec", "rayClusterConfig", "workerGroupSpecs", 0, "minReplicas"), "1"),
        ("DaemonSet", ("spec", "template", "spec", "tolerations", 0, "effects"), "NoSchedule"),
        ("Ingress", ("spec", "rules", 0, "http", "paths", 0, "pathType"), None),
    ],
)
def test_a_planted_mistake_is_refused(
    ray: list[Any], kind: str, path: tuple[str | int, ...], value: Any
) -> None:
    thing = of_kind(ray, kind)[0]
    place = thing
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert list(complaints(thing))


def test_nodes_are_found_pinned_encrypted_and_closed(ray: list[Any]) -> None:
    (node_class,) = of_kind(ray, "EC2NodeClass")
    spec = node_class["spec"]
    assert spec["amiSelectorTerms"] == [{"alias": "al2023@v20260801"}]
    assert spec["metadataOptions"]["httpTokens"] == "required"
    assert spec["metadataOptions"]["httpPutResponseHopLimit"] == 1
    (disk,) = spec["blockDeviceMappings"]
    assert disk["ebs"]["volumeType"] == "gp3" and disk["ebs"]["encrypted"]


def test_the_node_class_finds_subnets_by_a_tag_they_carry(large: Applied, ray: list[Any]) -> None:
    (node_class,) = of_kind(ray, "EC2NodeClass")
    (term,) = node_class["spec"]["subnetSelectorTerms"]
    private = [s for s in large.of_type("aws_subnet") if "private" in s.address]
    assert len(private) == 3
    for subnet in private:
        assert term["tags"].items() <= subnet.values["tags"].items()


def test_pools_prefer_spot_and_refer_to_the_class_that_exists(ray: list[Any]) -> None:
    names = {c["metadata"]["name"] for c in of_kind(ray, "EC2NodeClass")}
    weights = {}
    for pool in of_kind(ray, "NodePool"):
        template = pool["spec"]["template"]["spec"]
        assert template["nodeClassRef"]["name"] in names
        wanted = {r["key"]: r["values"] for r in template["requirements"]}
        weights[pool["metadata"]["name"]] = pool["spec"].get("weight", 0)
        if pool["metadata"]["name"].startswith("gpu-"):
            assert wanted["karpenter.k8s.aws/instance-family"] == ["g5", "g6"]
            assert pool["spec"]["limits"]["nvidia.com/gpu"] == "16"
            assert template["taints"][0]["key"] == "nvidia.com/gpu"
    assert weights["gpu-spot"] > weights["gpu-on-demand"]


def test_a_busy_gpu_node_is_not_consolidated(ray: list[Any], deployment: list[Any]) -> None:
    for pool in of_kind(ray, "NodePool"):
        if pool["metadata"]["name"].startswith("gpu-"):
            assert pool["spec"]["disruption"]["consolidationPolicy"] == "WhenEmpty"
    (budget,) = of_kind(deployment, "PodDisruptionBudget")
    (served,) = of_kind(deployment, "Deployment")
    labels = served["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    annotations = served["spec"]["template"]["metadata"]["annotations"]
    assert annotations["karpenter.sh/do-not-disrupt"] == "true"


def test_the_device_plugin_reaches_tainted_nodes(ray: list[Any]) -> None:
    (plugin,) = of_kind(ray, "DaemonSet")
    spec = plugin["spec"]["template"]["spec"]
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert spec["nodeSelector"] == {"specinfer/role": "gpu"}


def test_replicas_are_probed_on_ping_and_drain(deployment: list[Any]) -> None:
    (served,) = of_kind(deployment, "Deployment")
    pod = served["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/ping", "port": 8080}
    assert (
        pod["terminationGracePeriodSeconds"] > container["lifecycle"]["preStop"]["sleep"]["seconds"]
    )
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_scaler_scales_what_exists_by_load_and_clock(deployment: list[Any]) -> None:
    (scaler,) = of_kind(deployment, "ScaledObject")
    (served,) = of_kind(deployment, "Deployment")
    assert scaler["spec"]["scaleTargetRef"]["name"] == served["metadata"]["name"]
    assert [t["type"] for t in scaler["spec"]["triggers"]] == ["prometheus", "cron"]
    assert "replicas" not in served["spec"], "it would fight with the scaler"


def test_the_load_balancer_leads_to_a_service_that_exists(
    ray: list[Any], deployment: list[Any]
) -> None:
    for found, services in ((deployment, of_kind(deployment, "Service")), (ray, [])):
        (ingress,) = of_kind(found, "Ingress")
        (rule,) = ingress["spec"]["rules"]
        backend = rule["http"]["paths"][0]["backend"]["service"]
        names = {s["metadata"]["name"]: s["spec"]["ports"][0]["port"] for s in services}
        if not services:  # KubeRay makes it, under this name
            (service,) = of_kind(ray, "RayService")
            names = {service["spec"]["serveService"]["metadata"]["name"]: 8000}
        assert names[backend["name"]] == backend["port"]["number"]
        assert ingress["metadata"]["annotations"]["alb.ingress.kubernetes.io/scheme"] == "internal"


def test_ray_runs_our_application_and_scales_it(ray: list[Any]) -> None:
    (service,) = of_kind(ray, "RayService")
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    assert application["import_path"] == "specinfer.fleet:app"
    assert application["runtime_env"]["env_vars"]["SPECINFER_STREAM_DEADLINE_S"] == "80"
    (replica,) = application["deployments"]
    assert replica["autoscaling_config"]["max_replicas"] == 8
    cluster = service["spec"]["rayClusterConfig"]
    assert f"ray=={cluster['rayVersion']}\n" in (ROOT / "constraints.txt").read_text()
    assert cluster["enableInTreeAutoscaling"]
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["maxReplicas"] == 8


def test_traffic_stays_in_its_zone_where_it_can(ray: list[Any], deployment: list[Any]) -> None:
    (service,) = of_kind(deployment, "Service")
    (ray_service,) = of_kind(ray, "RayService")
    for spec in (service["spec"], ray_service["spec"]["serveService"]["spec"]):
        assert spec["trafficDistribution"] == "PreferSameZone"


def test_the_versions_are_in_support_and_fit(large: Applied) -> None:
    """Karpenter's matrix: Kubernetes 1.36 needs 1.13 or newer; helm never upgrades nested CRDs."""
    assert large.one("aws_eks_cluster.this").values["version"] == "1.36"
    definitions = large.one("helm_release.definitions").values
    controller = large.one("helm_release.controller").values
    assert definitions["version"] == controller["version"] == "1.14.1"
    assert controller["skip_crds"]
    settings = {s["name"]: s["value"] for s in controller["set"]}
    assert settings["settings.interruptionQueue"] == large.one("aws_sqs_queue.this").values["name"]


def test_interruptions_reach_the_queue(large: Applied) -> None:
    queue = large.one("module.karpenter.aws_sqs_queue.this").values["arn"]
    targets = large.of_type("aws_cloudwatch_event_target")
    assert len(targets) == 4 and {t.values["arn"] for t in targets} == {queue}


def test_the_cluster_is_private_encrypted_and_logged(large: Applied) -> None:
    cluster = large.one("aws_eks_cluster.this").values
    assert cluster["vpc_config"][0]["endpoint_private_access"]
    assert not cluster["vpc_config"][0]["endpoint_public_access"]
    assert cluster["encryption_config"][0]["resources"] == ["secrets"]
    assert len(cluster["enabled_cluster_log_types"]) == 5
    assert cluster["deletion_protection"]


def test_network_policies_are_enforced(large: Applied, ray: list[Any]) -> None:
    assert of_kind(ray, "NetworkPolicy")
    cni = large.one('aws_eks_addon.before_compute["vpc-cni"]').values
    assert yaml.safe_load(cni["configuration_values"]) == {"enableNetworkPolicy": "true"}


def test_only_who_reads_the_model_has_the_account_for_it(ray: list[Any]) -> None:
    (service,) = of_kind(ray, "RayService")
    cluster = service["spec"]["rayClusterConfig"]
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["template"]["spec"]["serviceAccountName"] == "specinfer"
    assert "serviceAccountName" not in cluster["headGroupSpec"]["template"]["spec"]


def test_pods_have_roles_of_their_own(large: Applied) -> None:
    accounts = {
        a.values["service_account"] for a in large.of_type("aws_eks_pod_identity_association")
    }
    assert accounts == {"karpenter", "specinfer", "aws-load-balancer-controller"}
    template = large.one("aws_launch_template.system").values["metadata_options"][0]
    assert (template["http_tokens"], template["http_put_response_hop_limit"]) == ("required", 1)
