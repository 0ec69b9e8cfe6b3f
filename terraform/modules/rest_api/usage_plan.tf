# Keys of clients, and what one key may do.

resource "aws_api_gateway_usage_plan" "this" {
  count = var.auth == "usage_plan" ? 1 : 0

  name        = var.name
  description = "What one key may do"

  api_stages {
    api_id = aws_api_gateway_rest_api.this.id
    stage  = aws_api_gateway_stage.this.stage_name
  }

  throttle_settings {
    rate_limit  = var.rate_limit
    burst_limit = var.burst_limit
  }

  quota_settings {
    limit  = var.daily_quota
    period = "DAY"
  }
}

resource "aws_api_gateway_usage_plan_key" "this" {
  for_each = aws_api_gateway_api_key.this

  key_id        = each.value.id
  key_type      = "API_KEY"
  usage_plan_id = aws_api_gateway_usage_plan.this[0].id
}
