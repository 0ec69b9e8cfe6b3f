"""The model artefact: checked, complete, the same bytes each time."""

import os
import tarfile

import pytest

from specinfer.deploy.artefact import check_artefact
from specinfer.deploy.errors import DeployError
from specinfer.deploy.upload import upload
from specinfer.errors import SpecInferError


def test_what_serving_reads_is_taken_and_nothing_else(model_folder, make_model):
    make_model(model_folder / "ssm", tokenizer=False)
    (model_folder / "specinfer.json").write_text('{"ssms": ["ssm"], "max_batch": 4}')
    for other in ("pytorch_model.bin", ".DS_Store", "train.py", ".git/config.json"):
        (model_folder / other).parent.mkdir(exist_ok=True)
        (model_folder / other).write_text("x")
    assert check_artefact(model_folder).names == (
        "config.json",
        "model.safetensors",
        "specinfer.json",
        "ssm/config.json",
        "ssm/model.safetensors",
        "tokenizer.json",
    )


def test_the_archive_depends_on_contents_alone(model_folder, tmp_path):
    artefact = check_artefact(model_folder)
    artefact.write_tar(tmp_path / "first.tar.gz")
    digest = artefact.digest
    os.utime(model_folder / "config.json", (1, 1))
    (model_folder / "config.json").chmod(0o600)
    artefact = check_artefact(model_folder)
    artefact.write_tar(tmp_path / "second.tar.gz")
    assert (tmp_path / "first.tar.gz").read_bytes() == (tmp_path / "second.tar.gz").read_bytes()
    assert artefact.digest == digest
    with tarfile.open(tmp_path / "first.tar.gz") as tar:
        assert {(m.uid, m.gid, m.mtime, m.mode) for m in tar.getmembers()} == {(0, 0, 0, 0o644)}
        assert tar.extractfile("config.json").read() == b'{"model_type": "llama"}'


def test_a_folder_is_written_once(model_folder, tmp_path):
    artefact = check_artefact(model_folder)
    artefact.write_folder(tmp_path / "out")
    assert check_artefact(tmp_path / "out").digest == artefact.digest
    with pytest.raises(DeployError, match="exists already"):
        artefact.write_folder(tmp_path / "out")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("specinfer.json", '{"tre": "1"}', "not a setting"),
        ("specinfer.json", '{"ssms": ["gone"]}', "gone"),
        ("specinfer.json", '{"ssms": ["../elsewhere"]}', "outside"),
        ("config.json", "{}", "model_type"),
        ("model.safetensors", "short", "safetensors"),
    ],
)
def test_what_the_container_would_refuse_is_refused_now(model_folder, file, content, said):
    (model_folder / file).write_text(content)
    with pytest.raises(SpecInferError, match=said):
        check_artefact(model_folder)


class FakeS3:
    def __init__(self):
        self.keys = []

    def upload_file(self, path, bucket, key, ExtraArgs):
        assert ExtraArgs == {"ChecksumAlgorithm": "SHA256"}
        self.keys.append((bucket, key))


def test_upload_keeps_the_names_under_the_prefix(model_folder):
    s3 = FakeS3()
    upload(check_artefact(model_folder), "s3://b/models/one/", s3)
    assert ("b", "models/one/config.json") in s3.keys
    assert len(s3.keys) == 3
    with pytest.raises(DeployError, match="last slash"):
        upload(check_artefact(model_folder), "s3://b/models/one", s3)
