"""Distilling and boost-tuning a pool of SSMs for an LLM (paper, section 3.2)."""
