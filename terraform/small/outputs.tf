output "url" {
  description = "Where the API's routes begin."
  value       = module.rest_api.url
}

output "api_key" {
  description = "Key of the client `default`: terraform output -raw api_key"
  value       = module.rest_api.api_keys["default"]
  sensitive   = true
}

output "curl" {
  description = "A first request, to paste into a shell in this folder."
  value       = <<-SHELL
    curl -sS '${module.rest_api.url}/v1/chat/completions' -H "x-api-key: $(terraform output -raw api_key)" -H 'Content-Type: application/json' -d '{"model": "${var.model_id}", "messages": [{"role": "user", "content": "Say hello."}], "temperature": 0}'
  SHELL
}

output "endpoint_name" {
  description = "SageMaker endpoint, for boto3 without the API."
  value       = module.model_endpoint.name
}

output "repository_url" {
  description = "Where to push the model server's image."
  value       = module.image.repository_url
}

output "model_s3_uri" {
  description = "Where the endpoint looks for its model: upload there."
  value       = local.model_uri
}

output "dashboard_url" {
  description = "The dashboard in the console."
  value       = module.observability.dashboard_url
}
