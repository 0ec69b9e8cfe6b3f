variable "cluster_name" {
  description = "Name of the cluster, the value of the discovery tag."
  type        = string
}

variable "node_role_name" {
  description = "Role of the nodes."
  type        = string
}

variable "ami_alias" {
  description = "AMI of the nodes, pinned: al2023@vYYYYMMDD.  @latest would replace nodes whenever AWS publishes."
  type        = string

  validation {
    condition     = can(regex("^al2023@v[0-9]{8}$", var.ami_alias))
    error_message = "ami_alias is ${var.ami_alias}; pin a release: al2023@vYYYYMMDD."
  }
}

variable "security_group_id" {
  description = "Security group of the nodes."
  type        = string
}

variable "gpu_families" {
  description = "Instance families with GPUs that the image's kernels are built for; more families, more Spot."
  type        = list(string)
  default     = ["g5", "g6"]
}

variable "gpu_counts" {
  description = "GPUs a node may have."
  type        = list(number)
  default     = [1, 4]
}

variable "gpu_limits" {
  description = "Most that each GPU pool may start; 16 GPUs are 4 g5.12xlarge."
  type = object({
    gpus   = string
    cpu    = string
    memory = string
  })
  default = { gpus = "16", cpu = "256", memory = "1024Gi" }
}

variable "device_plugin_image" {
  description = "Image of NVIDIA's device plugin."
  type        = string
  default     = "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"
}

variable "tags" {
  description = "Tags of the instances, which Terraform's default tags do not reach."
  type        = map(string)
}
