"""Read the policy documents of a state: who may do what on what."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from terraform_schema.workspace import Resource

# Attributes that hold a policy document, of whatever resource.
_DOCUMENTS = ("policy", "assume_role_policy", "inline_policy", "access_policy")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of one policy; names that may be single are lists here."""

    owner: str
    sid: str
    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    principal: Any
    condition: Mapping[str, Any]

    @property
    def is_identity_policy(self) -> bool:
        """A role's own policy; the others belong to a bucket, key, topic or queue."""
        return self.principal is None


def statements(resources: list[Resource]) -> Iterator[Statement]:
    for resource in resources:
        for name in _DOCUMENTS:
            text = resource.values.get(name)
            if isinstance(text, str) and '"Statement"' in text:
                yield from (_statement(resource, s) for s in json.loads(text)["Statement"])


def _statement(owner: Resource, document: Any) -> Statement:
    return Statement(
        owner.address,
        document.get("Sid", ""),
        document["Effect"],
        _several(document.get("Action", ())),
        _several(document.get("Resource", ())),
        document.get("Principal"),
        document.get("Condition", {}),
    )


def _several(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
