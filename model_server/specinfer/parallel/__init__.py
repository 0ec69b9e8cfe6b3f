"""An LLM shared by several processes, its ranks (paper, section 5.1: tensor model parallelism).

The process that takes requests starts the ranks with torchrun and talks to rank 0, which runs the
one engine: scheduler, drafters, verification.  Rank 0 tells the others each pass over the LLM, and
they run their share of it.  All ranks live and die together.
"""
