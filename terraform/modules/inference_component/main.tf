# Copies of the model on an endpoint's instances, each with its own GPUs, down to none at all.
# hashicorp/aws has no inference component yet, so CloudFormation makes it.

locals {
  component = "${var.name}-copy"
}

resource "aws_cloudformation_stack" "this" {
  name          = local.component
  on_failure    = "ROLLBACK"
  template_body = jsonencode(local.template)
}

locals {
  template = {
    AWSTemplateFormatVersion = "2010-09-09"
    Description              = "Inference component of ${var.name}"
    Resources = {
      Component = {
        Type = "AWS::SageMaker::InferenceComponent"
        Properties = {
          InferenceComponentName = local.component
          EndpointName           = var.endpoint_name
          VariantName            = var.variant
          Specification = {
            ModelName = var.model_name
            ComputeResourceRequirements = {
              NumberOfAcceleratorDevicesRequired = var.gpus_per_copy
              MinMemoryRequiredInMb              = var.memory_mb
            }
            StartupParameters = {
              ContainerStartupHealthCheckTimeoutInSeconds = var.startup_timeout_s
              ModelDataDownloadTimeoutInSeconds           = var.startup_timeout_s
            }
          }
          RuntimeConfig = { CopyCount = max(1, var.min_copies) }
        }
      }
    }
  }
}

resource "aws_appautoscaling_target" "this" {
  service_namespace  = "sagemaker"
  resource_id        = "inference-component/${local.component}"
  scalable_dimension = "sagemaker:inference-component:DesiredCopyCount"
  min_capacity       = var.min_copies
  max_capacity       = var.max_copies

  depends_on = [aws_cloudformation_stack.this]
}

resource "aws_appautoscaling_policy" "concurrency" {
  name               = "${var.name}-copies"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.this.service_namespace
  resource_id        = aws_appautoscaling_target.this.resource_id
  scalable_dimension = aws_appautoscaling_target.this.scalable_dimension

  target_tracking_scaling_policy_configuration {
    target_value       = var.target_concurrency
    scale_out_cooldown = 60
    scale_in_cooldown  = 300

    predefined_metric_specification {
      predefined_metric_type = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
    }
  }
}

# Target tracking cannot leave zero: with no copy there is no concurrency to measure.  The first
# refused request makes the first copy; until it is up, minutes later, callers get 503.
resource "aws_appautoscaling_policy" "wake" {
  count = var.min_copies == 0 ? 1 : 0

  name               = "${var.name}-wake"
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.this.service_namespace
  resource_id        = aws_appautoscaling_target.this.resource_id
  scalable_dimension = aws_appautoscaling_target.this.scalable_dimension

  step_scaling_policy_configuration {
    adjustment_type         = "ChangeInCapacity"
    metric_aggregation_type = "Maximum"
    cooldown                = 60

    step_adjustment {
      metric_interval_lower_bound = "0"
      scaling_adjustment          = 1
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "wake" {
  count = var.min_copies == 0 ? 1 : 0

  alarm_name          = "${var.name}-no-capacity"
  alarm_description   = "A request found no copy of the model: start one"
  namespace           = "AWS/SageMaker"
  metric_name         = "NoCapacityInvocationFailures"
  dimensions          = { InferenceComponentName = local.component }
  statistic           = "Maximum"
  period              = 30
  evaluation_periods  = 1
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "missing"
  alarm_actions       = [aws_appautoscaling_policy.wake[0].arn]
}
