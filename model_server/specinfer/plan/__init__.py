"""What a model will need, do and cost on which machine, before anything is bought."""
