output "url" {
  description = "Where the routes begin, without a last slash."
  value       = aws_api_gateway_stage.this.invoke_url
}

output "name" {
  description = "Name of the API, the dimension of its metrics."
  value       = aws_api_gateway_rest_api.this.name
}

output "stage_arn" {
  description = "ARN of the stage, for a web ACL."
  value       = aws_api_gateway_stage.this.arn
}

output "api_keys" {
  description = "With usage_plan: the key of each client."
  value       = { for client, key in aws_api_gateway_api_key.this : client => key.value }
  sensitive   = true
}
