variable "name" {
  description = "Name of the stack, used in every Name tag."
  type        = string
}

variable "cidr" {
  description = "Address range of the network; a /16 leaves room for pods of the EKS tier."
  type        = string
  default     = "10.40.0.0/16"

  validation {
    condition     = can(cidrsubnet(var.cidr, 8, 255))
    error_message = "cidr is ${var.cidr}; an IPv4 range of /20 or wider is needed."
  }
}

variable "zone_count" {
  description = "Availability zones to spread over."
  type        = number
  default     = 2

  validation {
    condition     = var.zone_count >= 2 && var.zone_count <= 3
    error_message = "zone_count is ${var.zone_count}; 2 or 3 zones are supported."
  }
}

variable "interface_endpoints" {
  description = "Services reached privately, such as sagemaker.runtime; each costs about 7.3 USD a month and zone."
  type        = set(string)
  default     = []
}

variable "nat" {
  description = "Add public subnets and one NAT gateway, for nodes that pull public images."
  type        = bool
  default     = false
}

variable "private_subnet_tags" {
  description = "Extra tags of the private subnets, by which Karpenter and load balancers find them."
  type        = map(string)
  default     = {}
}

variable "public_subnet_tags" {
  description = "Extra tags of the public subnets."
  type        = map(string)
  default     = {}
}

variable "kms_key_arn" {
  description = "Key of the flow log group."
  type        = string
}

variable "log_retention_days" {
  description = "Days to keep flow logs."
  type        = number
}
