"""Check Kubernetes objects against the schemas of the version we deploy; no cluster is needed."""

import gzip
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jsonschema import (  # type: ignore[import-untyped]
    Draft202012Validator,
)
from jsonschema.exceptions import best_match  # type: ignore[import-untyped]

from terraform_schema.catalogue import DATA

SCHEMA_FILE = DATA / "kubernetes_objects.json.gz"
# KubeRay publishes no package with its schema, so the fields in use are written down by hand.
RAY_FILE = DATA / "ray_service.json"

# apiVersion and kind -> definition.
OBJECTS: Mapping[tuple[str, str], str] = {
    ("apps/v1", "DaemonSet"): "io.k8s.api.apps.v1.DaemonSet",
    ("apps/v1", "Deployment"): "io.k8s.api.apps.v1.Deployment",
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): (
        "ComGithubAwsKarpenterProviderAwsPkgApisV1EC2NodeClass"
    ),
    ("karpenter.sh/v1", "NodePool"): "IoK8sSigsKarpenterPkgApisV1NodePool",
    ("keda.sh/v1alpha1", "ScaledObject"): "ComGithubKedacoreKedaV2ApisKedaV1alpha1ScaledObject",
    ("networking.k8s.io/v1", "Ingress"): "io.k8s.api.networking.v1.Ingress",
    ("networking.k8s.io/v1", "NetworkPolicy"): "io.k8s.api.networking.v1.NetworkPolicy",
    ("policy/v1", "PodDisruptionBudget"): "io.k8s.api.policy.v1.PodDisruptionBudget",
    ("v1", "PodTemplateSpec"): "io.k8s.api.core.v1.PodTemplateSpec",  # for Ray's pods
    ("v1", "Service"): "io.k8s.api.core.v1.Service",
}


@cache
def _schemas() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(SCHEMA_FILE.read_bytes()))
    document["$defs"]["RayService"] = json.loads(RAY_FILE.read_text())
    return document


def complaints(thing: Any) -> Iterator[str]:
    """What the Kubernetes API would refuse in one object: its path and the reason."""
    kind = (thing.get("apiVersion"), thing.get("kind"))
    name = "RayService" if kind == ("ray.io/v1", "RayService") else OBJECTS.get(kind)
    if name is None:
        yield f"{kind}: no schema is known"
        return
    schema = {**_schemas(), "$ref": f"#/$defs/{name}"}
    for error in Draft202012Validator(schema).iter_errors(thing):
        deepest = best_match([error]) or error
        yield f"{kind[1]} {deepest.json_path}: {deepest.message[:300]}"
