output "namespace" {
  description = "Namespace of the replicas."
  value       = kubernetes_namespace_v1.this.metadata[0].name
}

output "service" {
  description = "Address of the service inside the cluster."
  value       = "http://${local.service_name}.${local.namespace}:${local.service_port}"
}
