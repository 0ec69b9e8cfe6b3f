"""The REST front of a SpecInfer endpoint: checks, caches, invokes once and answers honestly."""
