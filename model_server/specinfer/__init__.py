"""SpecInfer (arXiv 2305.09781): lossless tree-based speculative decoding as an LLM engine.

Shapes, everywhere in this package: B requests; N tree nodes in the batch, roots included;
T nodes of one tree; R rows of logits; V vocabulary; H query heads; K key/value heads; D head
width; S cache slots; L layers; P pages of a block table; W 64-bit words of ancestor bits.
Rows of logits [N, V] are float32.
"""

__version__ = "0.1.0"
