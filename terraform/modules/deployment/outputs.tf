output "objects" {
  description = "The Kubernetes objects."
  value       = local.deployment_objects
}
