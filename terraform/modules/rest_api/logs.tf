# Where API Gateway logs: accesses, executions, and the role it writes with.

resource "aws_cloudwatch_log_group" "access" {
  name              = "/aws/apigateway/${var.name}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
}

# API Gateway logs with one role per account and region; leave it alone where it exists.
resource "aws_iam_role" "logs" {
  count = var.manage_account_log_role ? 1 : 0

  name_prefix = "${var.name}-api-logs-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "apigateway.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "logs" {
  count = var.manage_account_log_role ? 1 : 0

  name = "write-api-logs"
  role = aws_iam_role.logs[0].id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogGroups", "logs:DescribeLogStreams", "logs:PutLogEvents"]
      Resource = ["arn:${data.aws_partition.current.partition}:logs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:log-group:*"]
    }]
  })
}

resource "aws_api_gateway_account" "this" {
  count = var.manage_account_log_role ? 1 : 0

  cloudwatch_role_arn = aws_iam_role.logs[0].arn

  depends_on = [aws_iam_role_policy.logs]
}

# With execution logging on, API Gateway makes this group itself, kept for ever, unless it exists.
resource "aws_cloudwatch_log_group" "execution" {
  name              = "API-Gateway-Execution-Logs_${aws_api_gateway_rest_api.this.id}/${var.stage}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
}
