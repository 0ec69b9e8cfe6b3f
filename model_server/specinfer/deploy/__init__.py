"""From a model folder to a SageMaker endpoint: package, deploy, invoke, delete."""
