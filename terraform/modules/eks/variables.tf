variable "name" {
  description = "Name of the cluster."
  type        = string
}

variable "kubernetes_version" {
  description = "Kubernetes version.  Standard support ends: 1.35 on 27 Mar 2027, 1.36 on 2 Aug 2027."
  type        = string
  default     = "1.36"

  validation {
    condition     = contains(["1.35", "1.36"], var.kubernetes_version)
    error_message = "kubernetes_version is ${var.kubernetes_version}; 1.35 and 1.36 are in standard support and known to Karpenter 1.14."
  }
}

variable "subnet_ids" {
  description = "Private subnets of control plane and nodes."
  type        = list(string)
}

variable "public_access_cidrs" {
  description = "Addresses that may reach the Kubernetes API from outside; none keeps it private."
  type        = set(string)
  default     = []

  validation {
    condition     = !contains(var.public_access_cidrs, "0.0.0.0/0")
    error_message = "public_access_cidrs has 0.0.0.0/0; name the addresses of those who need the API."
  }
}

variable "admin_role_arns" {
  description = "IAM roles that administer the cluster, the one that runs Terraform among them."
  type        = set(string)
}

variable "system_instance_types" {
  description = "Graviton instance types of the two nodes for controllers."
  type        = list(string)
  default     = ["m7g.large", "m8g.large"]
}

variable "deletion_protection" {
  description = "Refuse to delete the cluster; switch off and apply before destroying."
  type        = bool
  default     = true
}

variable "kms_key_arn" {
  description = "Key of Kubernetes secrets and of the log group."
  type        = string
}

variable "log_retention_days" {
  description = "Days to keep the control plane's logs."
  type        = number
}
