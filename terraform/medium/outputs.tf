output "url" {
  description = "Where the API's routes begin."
  value       = module.rest_api.url
}

output "api_keys_secret_arn" {
  description = "Secret to put the hashes of API keys into; README tells how."
  value       = module.api_keys.secret_arn
}

output "curl" {
  description = "A first request, with a key of yours in SPECINFER_API_KEY."
  value       = <<-SHELL
    curl -sS '${module.rest_api.url}/v1/chat/completions' -H "Authorization: Bearer $SPECINFER_API_KEY" -H 'Content-Type: application/json' -d '{"model": "${var.model_id}", "messages": [{"role": "user", "content": "Say hello."}], "temperature": 0}'
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

output "web_acl_arn" {
  description = "ARN of the web ACL; null without one."
  value       = one(module.waf[*].web_acl_arn)
}
