output "name" {
  description = "Name of the inference component, which callers give when they invoke the endpoint."
  value       = local.component
  depends_on  = [aws_cloudformation_stack.this]
}
