# One resource of each kind that matters, all sound; test_mistakes.py spoils them one by one.

terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.62"
    }
    helm = {
      source  = "hashicorp/helm"
      version = "~> 3.1"
    }
  }
}

provider "aws" {
  region = "us-east-1"
}

variable "role_arn" {
  type    = string
  default = "arn:aws:iam::123456789012:role/service"
}

resource "aws_dynamodb_table" "cache" {
  name         = "cache"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "cache_key"

  attribute {
    name = "cache_key"
    type = "S"
  }

  ttl {
    attribute_name = "ttl"
    enabled        = true
  }
}

resource "aws_lambda_function" "gateway" {
  function_name = "gateway"
  filename      = "gateway.zip"
  handler       = "handler.lambda_handler"
  runtime       = "python3.12"
  role          = var.role_arn
  memory_size   = 1024
  timeout       = 29

  environment {
    variables = { SPECINFER_ENDPOINT = aws_sagemaker_endpoint.this.name }
  }
}

resource "aws_sagemaker_endpoint_configuration" "this" {
  name_prefix = "specinfer-"

  production_variants {
    variant_name           = "main"
    model_name             = "specinfer"
    instance_type          = "ml.g5.xlarge"
    initial_instance_count = 1

    container_startup_health_check_timeout_in_seconds = 900
  }
}

resource "aws_sagemaker_endpoint" "this" {
  name                 = "specinfer"
  endpoint_config_name = aws_sagemaker_endpoint_configuration.this.name
}

resource "aws_cloudwatch_metric_alarm" "p99" {
  alarm_name          = "p99"
  namespace           = "AWS/SageMaker"
  metric_name         = "ModelLatency"
  extended_statistic  = "p99"
  period              = 60
  evaluation_periods  = 5
  threshold           = 5000000
  comparison_operator = "GreaterThanThreshold"
}

resource "helm_release" "karpenter" {
  name    = "karpenter"
  chart   = "karpenter"
  version = "1.14.1"
  set     = [{ name = "settings.clusterName", value = "specinfer" }]
}
