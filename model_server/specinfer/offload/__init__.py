"""LLMs larger than the device: weights read layer by layer in every pass (paper, section 6.3).

A pass costs what reading the weights costs, whatever its rows; verifying a tree of tokens in one
pass therefore divides the reading by the tokens that it accepts.
"""

from specinfer.offload.llm import OffloadedLM, load_offloaded

__all__ = ["OffloadedLM", "load_offloaded"]
