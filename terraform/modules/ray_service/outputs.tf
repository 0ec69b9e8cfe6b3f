output "objects" {
  description = "The Kubernetes objects."
  value       = local.ray_objects
}
