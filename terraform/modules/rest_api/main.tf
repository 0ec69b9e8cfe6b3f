# The REST API in front of the functions.  Routes are spelt out: nothing else reaches the code.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  # A generation may be streamed; with streaming off everything is buffered.
  generations = ["POST /generate", "POST /v1/chat/completions", "POST /v1/completions"]
  questions   = ["GET /v1/models"]
  open        = ["GET /health", "GET /openapi.json"]
  jobs        = var.jobs ? ["POST /v1/jobs", "GET /v1/jobs/{id}", "DELETE /v1/jobs/{id}"] : []

  routes = {
    for route in concat(local.generations, local.questions, local.open, local.jobs) : route => {
      method = split(" ", route)[0]
      path   = trimprefix(split(" ", route)[1], "/")
      open   = contains(local.open, route)
      stream = var.stream != null && contains(local.generations, route)
    }
  }

  paths  = distinct([for route in local.routes : route.path])
  first  = toset([for path in local.paths : split("/", path)[0]])
  second = toset([for path in local.paths : join("/", slice(split("/", path), 0, 2)) if length(split("/", path)) > 1])
  third  = toset([for path in local.paths : path if length(split("/", path)) > 2])

  resource_ids = merge(
    { for path, resource in aws_api_gateway_resource.first : path => resource.id },
    { for path, resource in aws_api_gateway_resource.second : path => resource.id },
    { for path, resource in aws_api_gateway_resource.third : path => resource.id },
  )
}

resource "aws_api_gateway_rest_api" "this" {
  name        = var.name
  description = "SpecInfer gateway"

  endpoint_configuration {
    types = ["REGIONAL"]
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_api_gateway_resource" "first" {
  for_each = local.first

  rest_api_id = aws_api_gateway_rest_api.this.id
  parent_id   = aws_api_gateway_rest_api.this.root_resource_id
  path_part   = each.key
}

resource "aws_api_gateway_resource" "second" {
  for_each = local.second

  rest_api_id = aws_api_gateway_rest_api.this.id
  parent_id   = aws_api_gateway_resource.first[split("/", each.key)[0]].id
  path_part   = split("/", each.key)[1]
}

resource "aws_api_gateway_resource" "third" {
  for_each = local.third

  rest_api_id = aws_api_gateway_rest_api.this.id
  parent_id   = aws_api_gateway_resource.second[join("/", slice(split("/", each.key), 0, 2))].id
  path_part   = split("/", each.key)[2]
}

resource "aws_api_gateway_method" "this" {
  for_each = local.routes

  rest_api_id      = aws_api_gateway_rest_api.this.id
  resource_id      = local.resource_ids[each.value.path]
  http_method      = each.value.method
  authorization    = each.value.open ? "NONE" : (var.auth == "iam" ? "AWS_IAM" : "NONE")
  api_key_required = !each.value.open && var.auth == "usage_plan"
}

resource "aws_api_gateway_integration" "this" {
  for_each = local.routes

  rest_api_id             = aws_api_gateway_rest_api.this.id
  resource_id             = local.resource_ids[each.value.path]
  http_method             = aws_api_gateway_method.this[each.key].http_method
  type                    = "AWS_PROXY"
  integration_http_method = "POST"
  uri                     = each.value.stream ? var.stream.invoke_arn : var.answer.invoke_arn
  response_transfer_mode  = each.value.stream ? "STREAM" : "BUFFERED"
  timeout_milliseconds    = each.value.stream ? 900000 : 29000
}

# Browsers ask first, and without a key.
resource "aws_api_gateway_method" "preflight" {
  for_each = toset(local.paths)

  rest_api_id   = aws_api_gateway_rest_api.this.id
  resource_id   = local.resource_ids[each.key]
  http_method   = "OPTIONS"
  authorization = "NONE"
}

resource "aws_api_gateway_integration" "preflight" {
  for_each = toset(local.paths)

  rest_api_id             = aws_api_gateway_rest_api.this.id
  resource_id             = local.resource_ids[each.key]
  http_method             = aws_api_gateway_method.preflight[each.key].http_method
  type                    = "AWS_PROXY"
  integration_http_method = "POST"
  uri                     = var.answer.invoke_arn
  timeout_milliseconds    = 29000
}

resource "aws_lambda_permission" "this" {
  for_each = merge({ answer = var.answer }, var.stream == null ? {} : { stream = var.stream })

  statement_id  = "AllowThisApi"
  action        = "lambda:InvokeFunction"
  function_name = each.value.function_name
  principal     = "apigateway.amazonaws.com"
  source_arn    = "${local.execution_arn}/*/*/*"
}

locals {
  execution_arn = "arn:${data.aws_partition.current.partition}:execute-api:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${aws_api_gateway_rest_api.this.id}"
}

# What API Gateway says itself (no key, throttled, too long) in the shape of the gateway's own
# errors, and with the header without which a browser hides it.
resource "aws_api_gateway_gateway_response" "this" {
  for_each = toset(["DEFAULT_4XX", "DEFAULT_5XX"])

  rest_api_id   = aws_api_gateway_rest_api.this.id
  response_type = each.key

  response_parameters = {
    "gatewayresponse.header.Access-Control-Allow-Origin" = "'${var.cors_origin}'"
  }

  response_templates = {
    "application/json" = jsonencode({
      error = {
        message = "$context.error.message"
        type    = each.key == "DEFAULT_4XX" ? "invalid_request_error" : "server_error"
        code    = "$context.error.responseType"
      }
    })
  }
}

resource "aws_api_gateway_deployment" "this" {
  rest_api_id = aws_api_gateway_rest_api.this.id

  triggers = {
    redeployment = sha256(jsonencode([
      local.routes,
      var.auth,
      aws_api_gateway_method.this,
      aws_api_gateway_integration.this,
      aws_api_gateway_integration.preflight,
      aws_api_gateway_gateway_response.this,
    ]))
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_api_gateway_stage" "this" {
  rest_api_id          = aws_api_gateway_rest_api.this.id
  deployment_id        = aws_api_gateway_deployment.this.id
  stage_name           = var.stage
  xray_tracing_enabled = true

  # Who, what, how long; never a body, a key or a query string.
  access_log_settings {
    destination_arn = aws_cloudwatch_log_group.access.arn
    format = jsonencode({
      requestId          = "$context.requestId"
      traceId            = "$context.xrayTraceId"
      time               = "$context.requestTimeEpoch"
      sourceIp           = "$context.identity.sourceIp"
      apiKeyId           = "$context.identity.apiKeyId"
      route              = "$context.httpMethod $context.resourcePath"
      status             = "$context.status"
      responseBytes      = "$context.responseLength"
      latencyMs          = "$context.responseLatency"
      integrationMs      = "$context.integrationLatency"
      integrationFailure = "$context.integrationErrorMessage"
    })
  }

  depends_on = [aws_api_gateway_account.this]
}

resource "aws_api_gateway_method_settings" "this" {
  rest_api_id = aws_api_gateway_rest_api.this.id
  stage_name  = aws_api_gateway_stage.this.stage_name
  method_path = "*/*"

  settings {
    metrics_enabled        = true
    logging_level          = "ERROR"
    data_trace_enabled     = false # would log prompts
    throttling_rate_limit  = var.rate_limit
    throttling_burst_limit = var.burst_limit
  }
}

resource "aws_api_gateway_api_key" "this" {
  for_each = var.auth == "usage_plan" ? var.clients : toset([])

  name        = "${var.name}-${each.key}"
  description = "Key of ${each.key}"
}
