output "kubeconfig" {
  description = "How to point kubectl at the cluster."
  value       = "aws eks update-kubeconfig --region ${var.region} --name ${module.eks.name}"
}

output "address" {
  description = "How to find the load balancer's address."
  value       = "kubectl -n ${module.gpu_serving.namespace} get ingress specinfer -o jsonpath='{.status.loadBalancer.ingress[0].hostname}'"
}

output "service" {
  description = "Address of the service inside the cluster."
  value       = module.gpu_serving.service
}

output "repository_url" {
  description = "Where to push the model server's image."
  value       = module.image.repository_url
}

output "model_s3_uri" {
  description = "Where replicas look for their model: upload there."
  value       = local.model_uri
}
