variable "cluster_name" {
  description = "Name of the cluster."
  type        = string
}

variable "vpc_id" {
  description = "Network of the cluster."
  type        = string
}

variable "vpc_arn" {
  description = "ARN of that network."
  type        = string
}

variable "node_security_group_id" {
  description = "Security group that load balancers must be let into."
  type        = string
}

variable "chart_version" {
  description = "Version of the controller's chart."
  type        = string
  default     = "1.13.0"
}
