output "name" {
  description = "Name of the endpoint, known even while it is switched off."
  value       = var.name
  depends_on  = [aws_sagemaker_endpoint.this]
}

output "arn" {
  description = "ARN of the endpoint, known even while it is switched off."
  value       = "arn:${data.aws_partition.current.partition}:sagemaker:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:endpoint/${var.name}"
}

output "variant" {
  description = "Name of the endpoint's only variant."
  value       = local.variant
}

output "model_name" {
  description = "Name of the current model; null while it is switched off."
  value       = one(aws_sagemaker_model.this[*].name)
}

output "gpu_count" {
  description = "GPUs of one instance."
  value       = local.gpus[var.instance_type]
}

output "log_group" {
  description = "Log group of the containers."
  value       = aws_cloudwatch_log_group.this.name
}

output "settings_revision" {
  description = "Changes with anything that may change a seeded answer: image, instance type, settings."
  value       = substr(sha256(jsonencode([var.image, var.instance_type, var.environment])), 0, 16)
}
