"""The paper's tables for a pair of our own (paper, section 6)."""
