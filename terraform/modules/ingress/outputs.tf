output "ready" {
  description = "Depends on the controller, without which an Ingress stays without an address."
  value       = helm_release.this.id
}
