# A web ACL before the API: known bad input, and one address that asks too much.

resource "aws_wafv2_web_acl" "this" {
  name        = var.name
  description = "Before the API of ${var.name}"
  scope       = "REGIONAL"

  default_action {
    allow {}
  }

  visibility_config {
    cloudwatch_metrics_enabled = true
    metric_name                = var.name
    sampled_requests_enabled   = false # samples would show prompts and keys
  }

  # Rules are resources of their own below.
  lifecycle {
    ignore_changes = [rule]
  }
}

# Prompts are free text, so rule groups that look for SQL or scripts in bodies would refuse
# honest questions about code; these two look at known exploits and addresses.
resource "aws_wafv2_web_acl_rule_group_association" "this" {
  for_each = { AWSManagedRulesKnownBadInputsRuleSet = 10, AWSManagedRulesAmazonIpReputationList = 20 }

  rule_name       = each.key
  priority        = each.value
  web_acl_arn     = aws_wafv2_web_acl.this.arn
  override_action = "none"

  managed_rule_group {
    name        = each.key
    vendor_name = "AWS"
  }
}

resource "aws_wafv2_web_acl_rule" "rate" {
  name        = "one-address"
  priority    = 30
  web_acl_arn = aws_wafv2_web_acl.this.arn

  action {
    block {}
  }

  statement {
    rate_based_statement {
      limit              = var.requests_per_5_minutes
      aggregate_key_type = "IP"
    }
  }

  visibility_config {
    cloudwatch_metrics_enabled = true
    metric_name                = "${var.name}-one-address"
    sampled_requests_enabled   = false
  }
}

resource "aws_wafv2_web_acl_association" "this" {
  resource_arn = var.stage_arn
  web_acl_arn  = aws_wafv2_web_acl.this.arn
}

# WAF insists on this prefix.
resource "aws_cloudwatch_log_group" "this" {
  name              = "aws-waf-logs-${var.name}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
}

resource "aws_wafv2_web_acl_logging_configuration" "this" {
  resource_arn            = aws_wafv2_web_acl.this.arn
  log_destination_configs = [aws_cloudwatch_log_group.this.arn]

  redacted_fields {
    single_header {
      name = "authorization"
    }
  }

  redacted_fields {
    single_header {
      name = "x-api-key"
    }
  }
}
