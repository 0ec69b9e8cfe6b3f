output "answer" {
  description = "The buffered function: name and the ARN by which API Gateway invokes it."
  value = {
    function_name = aws_lambda_function.this["answer"].function_name
    invoke_arn    = aws_lambda_function.this["answer"].invoke_arn
  }
}

output "stream" {
  description = "The streaming function, or null."
  value = var.streaming ? {
    function_name = aws_lambda_function.this["stream"].function_name
    invoke_arn    = aws_lambda_function.this["stream"].response_streaming_invoke_arn
  } : null
}

output "log_groups" {
  description = "Log groups of the functions."
  value       = [for group in aws_cloudwatch_log_group.this : group.name]
}

output "function_names" {
  description = "Names of the functions."
  value       = [for function in aws_lambda_function.this : function.function_name]
}
