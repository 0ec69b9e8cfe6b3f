"""The laptop stack: every AWS service between a caller and the container, on loopback.

caller -> rest_api (API Gateway) -> lambda_pool (Lambda) -> sagemaker_runtime -> container;
the handler's DynamoDB is moto's server.
"""
