"""Settings and parameters are checked when built, each error naming its field."""

from pathlib import Path

import pytest

from specinfer.config import EngineConfig, TreeShape
from specinfer.errors import ConfigError, ParameterError
from specinfer.request import SamplingParams


@pytest.mark.parametrize(
    ("text", "widths"), [("1,1,3", (1, 1, 3)), ("<1, 1, 3>", (1, 1, 3)), ("4", (4,))]
)
def test_tree_shapes_are_read(text: str, widths: tuple[int, ...]) -> None:
    assert TreeShape.parse(text).widths == widths


@pytest.mark.parametrize("text", ["", "1,,2", "a", "1,0", "<1,2", "-1"])
def test_bad_tree_shapes_are_refused(text: str) -> None:
    if text == "<1,2":
        assert TreeShape.parse(text).widths == (1, 2)
        return
    with pytest.raises(ConfigError, match="tree"):
        TreeShape.parse(text)


def test_the_papers_tree_has_twenty_nodes() -> None:
    assert TreeShape.parse("1,1,3,1,1,1,1,1").nodes == 20


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("lookup_depth", 0),
        ("max_batch", 0),
        ("cache_tokens", -1),
        ("dtype", "int3"),
        ("quantization", "int3"),
        ("verifier", "guess"),
        ("cuda_graphs", "maybe"),
        ("max_context", 1),
        ("threads", 0),
        ("tree", TreeShape((4, 4, 4, 4))),
    ],
)
def test_bad_settings_are_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=setting):
        EngineConfig(model=Path(), ssms=(Path(),), **{setting: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_new_tokens", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("seed", -1),
        ("seed", 2**63),
        ("stop", ("",)),
    ],
)
def test_bad_parameters_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ParameterError, match=f"{field}: must be") as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field
