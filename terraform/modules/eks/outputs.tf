output "name" {
  description = "Name of the cluster."
  value       = aws_eks_cluster.this.name
}

output "arn" {
  description = "ARN of the cluster."
  value       = aws_eks_cluster.this.arn
}

output "endpoint" {
  description = "Address of the Kubernetes API."
  value       = aws_eks_cluster.this.endpoint
}

output "certificate_authority" {
  description = "Certificate of the Kubernetes API, base64."
  value       = aws_eks_cluster.this.certificate_authority[0].data
}

output "security_group_id" {
  description = "Security group of control plane and nodes."
  value       = aws_eks_cluster.this.vpc_config[0].cluster_security_group_id
}

output "ready" {
  description = "Depends on the nodes and add-ons that run other things' pods."
  value       = length(aws_eks_addon.this) > 0
  depends_on  = [aws_eks_node_group.system, aws_eks_addon.this]
}
