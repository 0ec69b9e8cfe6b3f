"""The real default model, from the cache or fetched: slow."""

import time

import pytest
import torch

from specinfer.model_store import resolve_model

pytestmark = pytest.mark.slow


def test_it_answers_a_question() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = resolve_model("default")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype is torch.float32
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    tokens = model.generate(**prompt, max_new_tokens=16, do_sample=False)[0]
    answer = tokenizer.decode(tokens[prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answer == "The capital of France is Paris."


def test_its_tokenizer_loads_in_two_seconds() -> None:
    from transformers import AutoTokenizer

    folder = resolve_model("default")
    started = time.monotonic()
    AutoTokenizer.from_pretrained(folder)
    assert time.monotonic() - started < 2
