"""How a model folder is run: by a decoder loop of our own where it fits, else by transformers.

Around a Llama-like model's linears transformers' modules spend more time on a CPU than the
linears themselves.  Its class stays the definition: tests compare the logits.
"""

from specinfer.lean.llm import LeanLM, load_llm, resolve_quantization

__all__ = ["LeanLM", "load_llm", "resolve_quantization"]
