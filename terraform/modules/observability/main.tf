# What is watched and who is told: alarms, one topic, traces of failures.
# Units differ by service: SageMaker's latencies are in microseconds, API Gateway's in
# milliseconds; SageMaker's GPU percentages are 100 times the number of GPUs at most.

locals {
  endpoint = { EndpointName = var.endpoint.name, VariantName = var.endpoint.variant }

  server = { service = "model-server" }

  endpoint_alarms = {
    "model-p99" = {
      description = "p99 of the model server is above ${var.p99_ms} ms"
      namespace   = "AWS/SageMaker"
      metric      = "ModelLatency"
      dimensions  = local.endpoint
      percentile  = "p99"
      above       = var.p99_ms * 1000 # µs
      minutes     = 5
    }
    "gpu-memory" = {
      description = "GPU memory is above ${var.memory_percent} %"
      namespace   = "/aws/sagemaker/Endpoints"
      metric      = "GPUMemoryUtilization"
      dimensions  = local.endpoint
      statistic   = "Maximum"
      above       = var.memory_percent * var.endpoint.gpu_count
      minutes     = 5
    }
    "memory" = {
      description = "Host memory is above ${var.memory_percent} %"
      namespace   = "/aws/sagemaker/Endpoints"
      metric      = "MemoryUtilization"
      dimensions  = local.endpoint
      statistic   = "Maximum"
      above       = var.memory_percent
      minutes     = 5
    }
    "broken-streams" = {
      description = "Streams break off in the middle"
      namespace   = "AWS/SageMaker"
      metric      = "MidStreamErrors"
      dimensions  = local.endpoint
      statistic   = "Sum"
      above       = 0
      minutes     = 5
    }
    "idle" = {
      description = "No request for ${var.idle_hours} h, and the instance is paid for: switch it off?"
      namespace   = "AWS/SageMaker"
      metric      = "Invocations"
      dimensions  = local.endpoint
      statistic   = "Sum"
      below       = 1
      minutes     = 60
      periods     = var.idle_hours
      missing     = "breaching"
    }
    "acceptance" = {
      description = "The LLM accepts next to nothing of the drafts: do SSMs and LLM belong together?"
      namespace   = var.metrics_namespace
      metric      = "AcceptedTokensPerStep"
      dimensions  = local.server
      statistic   = "Average"
      below       = var.min_accepted_per_step
      minutes     = 60
    }
  }

  gateway_alarms = merge(
    {
      "api-p99" = {
        description = "p99 as callers see it is above ${var.p99_ms} ms"
        namespace   = "AWS/ApiGateway"
        metric      = "Latency"
        dimensions  = { ApiName = var.api_name, Stage = var.api_stage }
        percentile  = "p99"
        above       = var.p99_ms # ms
        minutes     = 5
      }
      "api-5xx" = {
        description = "More than 5 % of the answers are server errors"
        namespace   = "AWS/ApiGateway"
        metric      = "5XXError"
        dimensions  = { ApiName = var.api_name, Stage = var.api_stage }
        statistic   = "Average" # of 0 and 1: a rate
        above       = 0.05
        minutes     = 5
      }
      "cache-throttles" = {
        description = "DynamoDB refuses requests of the cache"
        namespace   = "AWS/DynamoDB"
        metric      = "ThrottledRequests"
        dimensions  = { TableName = var.table_name }
        statistic   = "Sum"
        above       = 0
        minutes     = 5
      }
    },
    [for function in var.function_names : {
      "${function}-throttles" = {
        description = "${function} is refused more concurrency"
        namespace   = "AWS/Lambda"
        metric      = "Throttles"
        dimensions  = { FunctionName = function }
        statistic   = "Sum"
        above       = 0
        minutes     = 5
      }
      "${function}-errors" = {
        description = "${function} ends with errors"
        namespace   = "AWS/Lambda"
        metric      = "Errors"
        dimensions  = { FunctionName = function }
        statistic   = "Sum"
        above       = 0
        minutes     = 5
      }
    }]...
  )

  alarms = merge(
    { for name, alarm in local.endpoint_alarms : name => alarm if var.endpoint.enabled },
    { for name, alarm in local.gateway_alarms : name => alarm if var.api_name != null },
  )
}

resource "aws_sns_topic" "this" {
  name              = "${var.name}-alarms"
  kms_master_key_id = var.kms_key_arn
}

resource "aws_sns_topic_policy" "this" {
  arn = aws_sns_topic.this.arn

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "ServicesThatTell"
      Effect    = "Allow"
      Principal = { Service = ["budgets.amazonaws.com", "cloudwatch.amazonaws.com", "costalerts.amazonaws.com"] }
      Action    = "sns:Publish"
      Resource  = aws_sns_topic.this.arn
      Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id } }
    }]
  })
}

data "aws_caller_identity" "current" {}
data "aws_region" "current" {}

resource "aws_sns_topic_subscription" "this" {
  for_each = var.emails

  topic_arn = aws_sns_topic.this.arn
  protocol  = "email"
  endpoint  = each.key
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = local.alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = lookup(each.value, "statistic", null)
  extended_statistic  = lookup(each.value, "percentile", null)
  period              = each.value.minutes == 60 ? 3600 : 60
  evaluation_periods  = lookup(each.value, "periods", each.value.minutes == 60 ? 1 : each.value.minutes)
  datapoints_to_alarm = lookup(each.value, "periods", each.value.minutes == 60 ? 1 : 3)
  comparison_operator = contains(keys(each.value), "above") ? "GreaterThanThreshold" : "LessThanThreshold"
  threshold           = lookup(each.value, "above", lookup(each.value, "below", null))
  treat_missing_data  = lookup(each.value, "missing", "notBreaching")
  alarm_actions       = [aws_sns_topic.this.arn]
  ok_actions          = [aws_sns_topic.this.arn]
}

resource "aws_xray_group" "failures" {
  count = length(var.function_names) > 0 ? 1 : 0

  group_name        = "${var.name}-failures"
  filter_expression = "(fault = true OR error = true) AND (${join(" OR ", [for name in var.function_names : "service(\"${name}\")"])})"

  insights_configuration {
    insights_enabled      = true
    notifications_enabled = false
  }
}
