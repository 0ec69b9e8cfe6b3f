output "ready" {
  description = "Depends on the pools, so that pods do not wait for nodes that cannot come."
  value       = helm_release.node_pools.id
}
