# The model server as a real-time (or asynchronous) SageMaker endpoint.
# Models and configurations cannot be changed, so each change makes new ones under new names
# first, moves the endpoint to them, and only then removes the old ones.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  # GPUs by instance type: SageMaker reports GPU figures as 0-100 % times this.
  gpus = {
    "ml.g5.xlarge"   = 1
    "ml.g5.2xlarge"  = 1
    "ml.g5.4xlarge"  = 1
    "ml.g5.8xlarge"  = 1
    "ml.g5.12xlarge" = 4
    "ml.g5.16xlarge" = 1
    "ml.g5.24xlarge" = 4
    "ml.g5.48xlarge" = 8
    "ml.g6.xlarge"   = 1
    "ml.g6.2xlarge"  = 1
    "ml.g6.4xlarge"  = 1
    "ml.g6.8xlarge"  = 1
    "ml.g6.12xlarge" = 4
    "ml.g6.16xlarge" = 1
    "ml.g6.24xlarge" = 4
    "ml.g6.48xlarge" = 8
  }

  variant   = "main"
  instances = var.enabled ? 1 : 0
  scales    = var.enabled && !var.by_components && var.scaling.max_instances > var.scaling.min_instances
}

module "role" {
  source = "../model_role"

  name                 = var.name
  model_s3_uri         = var.model_s3_uri
  image_repository_arn = var.image_repository_arn
  log_group_arn        = aws_cloudwatch_log_group.this.arn
  kms_key_arn          = var.kms_key_arn
  async                = var.async
}

resource "aws_security_group" "this" {
  name_prefix = "${var.name}-model-"
  description = "Model containers: out to S3 only"
  vpc_id      = var.vpc_id

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_egress_rule" "s3" {
  security_group_id = aws_security_group.this.id
  description       = "Model download through the S3 gateway endpoint"
  prefix_list_id    = var.s3_prefix_list_id
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_sagemaker_model" "this" {
  count = local.instances

  # No name: the provider invents one, so a replacement can exist beside the old model.
  execution_role_arn       = module.role.arn
  enable_network_isolation = true

  primary_container {
    image       = var.image
    environment = merge({ HF_HUB_OFFLINE = "1" }, var.environment)

    model_data_source {
      s3_data_source {
        s3_uri           = var.model_s3_uri
        s3_data_type     = "S3Prefix"
        compression_type = "None"
      }
    }
  }

  vpc_config {
    subnets            = var.subnet_ids
    security_group_ids = [aws_security_group.this.id]
  }

  lifecycle {
    create_before_destroy = true
  }

  depends_on = [module.role]
}

resource "aws_sagemaker_endpoint_configuration" "this" {
  count = local.instances

  name_prefix = "${var.name}-"
  kms_key_arn = var.volume_kms_key_arn

  # With inference components the model belongs to the component, and the role to this.
  execution_role_arn = var.by_components ? module.role.arn : null

  production_variants {
    variant_name           = local.variant
    model_name             = var.by_components ? null : aws_sagemaker_model.this[0].name
    instance_type          = var.instance_type
    initial_instance_count = max(1, var.scaling.min_instances)
    inference_ami_version  = var.inference_ami_version

    container_startup_health_check_timeout_in_seconds = var.startup_timeout_s
    model_data_download_timeout_in_seconds            = var.startup_timeout_s

    routing_config {
      routing_strategy = "LEAST_OUTSTANDING_REQUESTS"
    }

    dynamic "managed_instance_scaling" {
      for_each = var.by_components ? [var.scaling] : []

      content {
        status             = "ENABLED"
        min_instance_count = managed_instance_scaling.value.min_instances
        max_instance_count = managed_instance_scaling.value.max_instances
      }
    }
  }

  dynamic "async_inference_config" {
    for_each = var.async == null ? [] : [var.async]

    content {
      client_config {
        max_concurrent_invocations_per_instance = async_inference_config.value.concurrency
      }

      output_config {
        s3_output_path  = async_inference_config.value.output_s3_uri
        s3_failure_path = async_inference_config.value.failure_s3_uri
        kms_key_id      = var.kms_key_arn

        notification_config {
          success_topic = async_inference_config.value.success_topic_arn
          error_topic   = async_inference_config.value.error_topic_arn
        }
      }
    }
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_sagemaker_endpoint" "this" {
  count = local.instances

  name                 = var.name
  endpoint_config_name = aws_sagemaker_endpoint_configuration.this[0].name

  deployment_config {
    auto_rollback_configuration {
      alarms {
        alarm_name = aws_cloudwatch_metric_alarm.server_errors.alarm_name
      }
    }

    dynamic "blue_green_update_policy" {
      for_each = var.rollout == "rolling" ? [] : [var.rollout]

      content {
        termination_wait_in_seconds          = 300
        maximum_execution_timeout_in_seconds = 3600

        traffic_routing_configuration {
          type                     = blue_green_update_policy.value == "canary" ? "CANARY" : "ALL_AT_ONCE"
          wait_interval_in_seconds = 300

          dynamic "canary_size" {
            for_each = blue_green_update_policy.value == "canary" ? [10] : []

            content {
              type  = "CAPACITY_PERCENT"
              value = canary_size.value
            }
          }
        }
      }
    }

    dynamic "rolling_update_policy" {
      for_each = var.rollout == "rolling" ? [1] : []

      content {
        wait_interval_in_seconds             = 300
        maximum_execution_timeout_in_seconds = 3600

        maximum_batch_size {
          type  = "INSTANCE_COUNT"
          value = rolling_update_policy.value
        }
      }
    }
  }

  depends_on = [aws_cloudwatch_log_group.this]
}

module "autoscaling" {
  source = "../autoscaling"
  count  = local.scales ? 1 : 0

  endpoint_name = aws_sagemaker_endpoint.this[0].name
  variant       = local.variant
  scaling       = var.scaling
  schedule      = var.schedule
  measure       = var.async == null ? "concurrency" : "backlog"
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/aws/sagemaker/Endpoints/${var.name}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
}

# Also the alarm that rolls a bad deployment back.
resource "aws_cloudwatch_metric_alarm" "server_errors" {
  alarm_name          = "${var.name}-endpoint-5xx"
  alarm_description   = "The model server answers with errors of its own"
  namespace           = "AWS/SageMaker"
  metric_name         = "Invocation5XXErrors"
  dimensions          = { EndpointName = var.name, VariantName = local.variant }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 2
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}
