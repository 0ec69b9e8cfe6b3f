variable "cluster_name" {
  description = "Name of the cluster."
  type        = string
}

variable "karpenter_version" {
  description = "Karpenter version.  Kubernetes 1.36 needs 1.13 or newer."
  type        = string
  default     = "1.14.1"

  validation {
    condition     = can(regex("^1\\.(1[3-9]|[2-9][0-9])\\.", var.karpenter_version))
    error_message = "karpenter_version is ${var.karpenter_version}; Kubernetes 1.36 needs 1.13 or newer."
  }
}

variable "kms_key_arn" {
  description = "Key of the interruption queue."
  type        = string
}
