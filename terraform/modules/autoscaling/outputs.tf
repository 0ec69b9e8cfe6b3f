output "resource_id" {
  description = "What Application Auto Scaling calls the variant."
  value       = aws_appautoscaling_target.this.resource_id
}
