# The Lambda in front of the endpoint: one function for buffered answers and, when streaming is
# on, a second one from the same package that answers token by token.

data "aws_caller_identity" "current" {}

locals {
  # Names of lambda/specinfer_gateway/settings.py; a variable left null is left out.
  settings = {
    SPECINFER_ENDPOINT            = var.endpoint.name
    SPECINFER_INFERENCE_COMPONENT = var.inference_component
    SPECINFER_MODEL_ID            = var.model_id
    SPECINFER_MODEL_REVISION      = var.model_revision
    SPECINFER_ENGINE_REVISION     = var.endpoint.settings_revision
    SPECINFER_CACHE_TABLE         = var.cache.table_name
    SPECINFER_CACHE_TTL_SECONDS   = tostring(var.cache.ttl_s)
    SPECINFER_CORS_ORIGIN         = var.cors_origin
    SPECINFER_MAX_NEW_TOKENS      = tostring(var.max_new_tokens)
    SPECINFER_CONTENT_FILTER      = var.content_filter
    SPECINFER_API_KEYS_SECRET     = var.api_keys_secret_arn
    SPECINFER_ASYNC_ENDPOINT      = try(var.jobs.endpoint_name, null)
    SPECINFER_JOBS_TABLE          = try(var.jobs.table_name, null)
    SPECINFER_JOBS_BUCKET         = try(var.jobs.bucket, null)
  }
  # https://docs.aws.amazon.com/powertools/python/latest/#environment-variables
  powertools = {
    POWERTOOLS_SERVICE_NAME      = "gateway"
    POWERTOOLS_METRICS_NAMESPACE = var.metrics_namespace
    POWERTOOLS_LOG_LEVEL         = var.log_level
  }
  environment = merge(local.powertools, { for k, v in local.settings : k => v if v != null })

  # An endpoint whose model is in a component is asked for that component.
  components = [for name in var.inference_component[*] : "${split(":endpoint/", var.endpoint.arn)[0]}:inference-component/${name}"]

  # A buffered answer has to be out before API Gateway gives up at 29 s; a streamed one
  # before SageMaker does at 8 min.
  functions = merge(
    { answer = { timeout_s = 29, environment = { SPECINFER_DEADLINE_SECONDS = "28" } } },
    var.streaming ? { stream = { timeout_s = 490, environment = local.streaming } } : {},
  )
  # The managed runtime cannot stream, so the package replaces its loop.
  streaming = {
    AWS_LAMBDA_EXEC_WRAPPER           = var.stream_wrapper
    SPECINFER_STREAM_DEADLINE_SECONDS = "480"
  }
}

resource "aws_lambda_function" "this" {
  for_each = local.functions

  function_name    = "${var.name}-${each.key}"
  description      = "SpecInfer gateway: validates, looks up, invokes, stores"
  filename         = var.package
  source_code_hash = filebase64sha256(var.package)
  handler          = "handler.lambda_handler"
  runtime          = var.runtime
  architectures    = [var.architecture]
  memory_size      = var.memory_mb
  timeout          = each.value.timeout_s
  role             = aws_iam_role.this.arn
  kms_key_arn      = var.kms_key_arn

  # More at once than the endpoint can take only move the queue.
  reserved_concurrent_executions = var.concurrency

  environment {
    variables = merge(local.environment, each.value.environment)
  }

  vpc_config {
    subnet_ids         = var.subnet_ids
    security_group_ids = [aws_security_group.this.id]
  }

  tracing_config {
    mode = "Active"
  }

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.this[each.key].name
  }

  depends_on = [aws_iam_role_policy.this]
}

resource "aws_cloudwatch_log_group" "this" {
  for_each = local.functions

  name              = "/aws/lambda/${var.name}-${each.key}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
}

resource "aws_security_group" "this" {
  name_prefix = "${var.name}-gateway-"
  description = "Gateway functions: out to the VPC endpoints only"
  vpc_id      = var.vpc_id

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_egress_rule" "interface" {
  security_group_id            = aws_security_group.this.id
  description                  = "SageMaker Runtime and Secrets Manager through interface endpoints"
  referenced_security_group_id = var.endpoint_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
}

resource "aws_vpc_security_group_egress_rule" "gateway" {
  for_each = var.gateway_prefix_lists

  security_group_id = aws_security_group.this.id
  description       = "${each.key} through its gateway endpoint"
  prefix_list_id    = each.value
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_iam_role" "this" {
  name_prefix = "${var.name}-gateway-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "lambda.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id } }
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  name = "answer-requests"
  role = aws_iam_role.this.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [
        {
          Sid      = "AskTheModel"
          Effect   = "Allow"
          Action   = ["sagemaker:InvokeEndpoint", "sagemaker:InvokeEndpointWithResponseStream"]
          Resource = concat([var.endpoint.arn], local.components)
        },
        {
          Sid      = "UseTheCache"
          Effect   = "Allow"
          Action   = ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
          Resource = [var.cache.table_arn]
        },
        {
          Sid      = "UseTheKey"
          Effect   = "Allow"
          Action   = ["kms:Decrypt", "kms:GenerateDataKey"]
          Resource = [var.kms_key_arn]
        },
        {
          Sid      = "WriteItsLogs"
          Effect   = "Allow"
          Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
          Resource = [for group in aws_cloudwatch_log_group.this : "${group.arn}:*"]
        },
        {
          Sid      = "SendTraces" # these actions know no resource
          Effect   = "Allow"
          Action   = ["xray:PutTelemetryRecords", "xray:PutTraceSegments"]
          Resource = ["*"]
        },
        {
          Sid    = "AttachToTheNetwork" # nor do these, when Lambda calls them for a function
          Effect = "Allow"
          Action = [
            "ec2:AssignPrivateIpAddresses",
            "ec2:CreateNetworkInterface",
            "ec2:DeleteNetworkInterface",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSubnets",
            "ec2:UnassignPrivateIpAddresses",
          ]
          Resource = ["*"]
        },
      ],
      var.api_keys_secret_arn == null ? [] : [{
        Sid      = "ReadKeyHashes"
        Effect   = "Allow"
        Action   = ["secretsmanager:GetSecretValue"]
        Resource = [var.api_keys_secret_arn]
      }],
      var.jobs == null ? [] : [
        {
          Sid      = "StartJobs"
          Effect   = "Allow"
          Action   = ["sagemaker:InvokeEndpointAsync"]
          Resource = [var.jobs.endpoint_arn]
        },
        {
          Sid      = "KeepJobs"
          Effect   = "Allow"
          Action   = ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
          Resource = [var.jobs.table_arn]
        },
        {
          Sid      = "ExchangeJobs"
          Effect   = "Allow"
          Action   = ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
          Resource = ["${var.jobs.bucket_arn}/*"]
        },
        {
          # Without it a missing answer is 403 instead of 404: "not finished" looks like a fault.
          Sid      = "SeeThatAnAnswerIsMissing"
          Effect   = "Allow"
          Action   = ["s3:ListBucket"]
          Resource = [var.jobs.bucket_arn]
        },
      ],
    )
  })
}
