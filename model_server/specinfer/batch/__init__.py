"""Offline batches: JSON lines in, JSON lines out, resumed where they were interrupted."""
