"""The HTTP face of the engine: the SageMaker container contract and three dialects of LLM API."""
