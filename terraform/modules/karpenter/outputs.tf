output "node_role_name" {
  description = "Role of the nodes that Karpenter starts."
  value       = aws_iam_role.node.name
}

output "queue_name" {
  description = "Name of the interruption queue."
  value       = aws_sqs_queue.this.name
}

output "ready" {
  description = "Depends on the controller and all it needs."
  value       = helm_release.controller.id
  depends_on  = [aws_eks_access_entry.node, aws_cloudwatch_event_target.this, aws_sqs_queue_policy.this]
}
