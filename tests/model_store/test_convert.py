"""A tiny random model written as GGUF by llama.cpp's rules must come back with the same logits."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Config

from specinfer.model_store import ModelStoreError, Progress
from specinfer.model_store.convert import convert

# ggml's names, restated here so that the converter's table is not its own judge.
GGML = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# GPT-2's byte alphabet: printable bytes stand for themselves, the others move past 255.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
ALPHABET = [chr(b) for b in PRINTABLE] + [chr(256 + i) for i in range(256 - len(PRINTABLE))]
VOCABULARY = ["<|end|>", "<|start|>", *ALPHABET, "hi"]
SIZES: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def _interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's row order for llama: rotary halves of a head become neighbouring pairs."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, columns)


def _ggml_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in GGML:
        return f"{GGML[stem]}.{kind}"
    _, _, layer, inner = stem.split(".", 3)
    return f"blk.{layer}.{GGML[inner]}.{kind}"


def _write_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(VOCABULARY)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control, control, *[normal] * (len(VOCABULARY) - 2)])
    writer.add_token_merges(["h i"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages[0]['content'] }}")


def _write_gguf(model: Any, path: Path) -> None:
    config = model.config
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _write_tokenizer(writer)
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        if config.model_type == "llama" and name.endswith("q_proj.weight"):
            values = _interleaved(values, config.num_attention_heads)
        if config.model_type == "llama" and name.endswith("k_proj.weight"):
            values = _interleaved(values, config.num_key_value_heads)
        writer.add_tensor(_ggml_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _random_model(config: Any) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("kind", [LlamaConfig, Qwen2Config])
def test_logits_and_tokenizer_survive_the_round_trip(
    kind: Any, tmp_path: Path, progress: Progress
) -> None:
    model = _random_model(kind(**SIZES, tie_word_embeddings=False))
    _write_gguf(model, tmp_path / "model.gguf")
    convert(tmp_path / "model.gguf", tmp_path / "out", "float32", progress)

    back = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokens = torch.tensor([[2, 3, 5, 8, 13, 21]])
    with torch.no_grad():
        assert torch.equal(back(tokens).logits, model(tokens).logits)
    assert back.dtype is torch.float32
    assert not hasattr(back.config, "quantization_config")

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.decode(tokenizer("hi, día 🙂")["input_ids"]) == "hi, día 🙂"
    assert tokenizer.convert_tokens_to_ids("hi") in tokenizer("hi")["input_ids"]
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "yo"}], tokenize=False)
    assert chat == "yo"


def test_a_tensor_it_does_not_know_is_an_error(tmp_path: Path, progress: Progress) -> None:
    model = _random_model(LlamaConfig(**SIZES))
    model.model.register_buffer("novelty", torch.zeros(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GGML, "model", "rope_freqs")
        _write_gguf(model, tmp_path / "model.gguf")
    with pytest.raises(ModelStoreError, match="does not know: rope_freqs"):
        convert(tmp_path / "model.gguf", tmp_path / "out", "float32", progress)
