"""Constrained output: what an answer must match, and which tokens keep it matching."""
