"""A model folder that can be packaged, and SageMaker's resources as far as they are used."""

import struct
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError


def write_model(folder, tokenizer=True):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    if tokenizer:
        (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def model_folder(tmp_path):
    return write_model(tmp_path / "model")


@pytest.fixture
def make_model():
    return write_model


class FakeKind:
    """One kind of resource: named objects, made, found and deleted."""

    def __init__(self, key, log):
        self.key = key
        self.log = log
        self.items = {}

    def create(self, **arguments):
        name = arguments[self.key]
        assert name not in self.items
        self.log.append(("create", name))
        self.items[name] = FakeItem(self, name, arguments)
        return self.items[name]

    def get(self, **arguments):
        name = arguments[self.key]
        if name not in self.items:
            error = {"Error": {"Code": "ValidationException", "Message": "Could not find"}}
            raise ClientError(error, "Describe")
        return self.items[name]


class FakeItem:
    """A resource with its arguments as attributes."""

    def __init__(self, kind, name, arguments):
        self._kind, self._name = kind, name
        vars(self).update(arguments)
        variants = arguments.get("production_variants", [])
        self.production_variants = [SimpleNamespace(**variant) for variant in variants]

    def update(self):
        self._kind.log.append(("update", self._name))

    def wait_for_status(self, status, timeout=None):
        self._kind.log.append((status, self._name))

    def delete(self):
        self._kind.log.append(("delete", self._name))
        del self._kind.items[self._name]


@pytest.fixture
def resources():
    log = []
    return SimpleNamespace(
        log=log,
        Model=FakeKind("model_name", log),
        EndpointConfig=FakeKind("endpoint_config_name", log),
        Endpoint=FakeKind("endpoint_name", log),
    )
