# Instances follow the requests in flight; at night fewer are kept.

resource "aws_appautoscaling_target" "this" {
  service_namespace  = "sagemaker"
  resource_id        = "endpoint/${var.endpoint_name}/variant/${var.variant}"
  scalable_dimension = "sagemaker:variant:DesiredInstanceCount"
  min_capacity       = var.scaling.min_instances
  max_capacity       = var.scaling.max_instances
}

# Concurrency, not requests a minute: one request may take 0.1 s or 60 s.
resource "aws_appautoscaling_policy" "concurrency" {
  count = var.measure == "concurrency" ? 1 : 0

  name               = "${var.endpoint_name}-concurrency"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.this.service_namespace
  resource_id        = aws_appautoscaling_target.this.resource_id
  scalable_dimension = aws_appautoscaling_target.this.scalable_dimension

  target_tracking_scaling_policy_configuration {
    target_value       = var.scaling.target_concurrency
    scale_out_cooldown = 60
    scale_in_cooldown  = 300

    predefined_metric_specification {
      predefined_metric_type = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    }
  }
}

# An asynchronous endpoint may have no instance at all; its queue is what counts.
resource "aws_appautoscaling_policy" "backlog" {
  count = var.measure == "backlog" ? 1 : 0

  name               = "${var.endpoint_name}-backlog"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.this.service_namespace
  resource_id        = aws_appautoscaling_target.this.resource_id
  scalable_dimension = aws_appautoscaling_target.this.scalable_dimension

  target_tracking_scaling_policy_configuration {
    target_value       = var.scaling.target_concurrency
    scale_out_cooldown = 60
    scale_in_cooldown  = 600

    customized_metric_specification {
      namespace   = "AWS/SageMaker"
      metric_name = "ApproximateBacklogSizePerInstance"
      statistic   = "Average"

      dimensions {
        name  = "EndpointName"
        value = var.endpoint_name
      }
    }
  }
}

resource "aws_appautoscaling_scheduled_action" "this" {
  for_each = var.schedule

  name               = "${var.endpoint_name}-${each.key}"
  service_namespace  = aws_appautoscaling_target.this.service_namespace
  resource_id        = aws_appautoscaling_target.this.resource_id
  scalable_dimension = aws_appautoscaling_target.this.scalable_dimension
  schedule           = each.value.cron
  timezone           = each.value.timezone

  scalable_target_action {
    min_capacity = each.value.min_instances
    max_capacity = each.value.max_instances
  }
}
