"""Learning-based speculators (paper, section 3): who proposes token trees."""
