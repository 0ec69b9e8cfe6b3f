variable "region" {
  description = "AWS region; prices differ by up to a third between regions."
  type        = string
  default     = "us-east-1"
}

variable "project" {
  description = "Project tag, and the first part of every name."
  type        = string
  default     = "specinfer"
}

variable "environment" {
  description = "Environment tag, and the second part of every name."
  type        = string
  default     = "large"
}

variable "owner" {
  description = "Owner tag: who pays or answers for this stack."
  type        = string
}

variable "cidr" {
  description = "Address range of the network."
  type        = string
  default     = "10.42.0.0/16"
}

variable "image_uri" {
  description = "Image of the model server; null for this stack's repository and `image_tag`."
  type        = string
  default     = null
}

variable "image_tag" {
  description = "Tag in this stack's repository; tags are immutable there."
  type        = string
  default     = "0.1.0"
}

variable "model_revision" {
  description = "Revision of the model, as the model server reports it; changing it rolls the endpoint."
  type        = string
}

variable "model_s3_uri" {
  description = "Folder of the model; null for models/REVISION/ in this stack's bucket."
  type        = string
  default     = null
}

variable "server_settings" {
  description = "Settings of the model server, SPECINFER_*."
  type        = map(string)
  default     = {}
}

variable "alarm_emails" {
  description = "Who is told of alarms, budget and anomalies."
  type        = set(string)
  default     = []
}

variable "monthly_budget_usd" {
  description = "Budget of a month, USD."
  type        = number
  default     = 20000
}

variable "activate_cost_tags" {
  description = "Activate the tags for cost allocation; only the payer account may."
  type        = bool
  default     = false
}

variable "log_retention_days" {
  description = "Days to keep every log."
  type        = number
  default     = 30

  validation {
    condition     = contains([30, 60, 90], var.log_retention_days)
    error_message = "log_retention_days is ${var.log_retention_days}; 30, 60 or 90."
  }
}

variable "force_destroy" {
  description = "Let `terraform destroy` delete models, images and trails too."
  type        = bool
  default     = false
}

variable "kubernetes_version" {
  description = "Kubernetes version.  Standard support ends: 1.35 on 27 Mar 2027, 1.36 on 2 Aug 2027."
  type        = string
  default     = "1.36"
}

variable "public_access_cidrs" {
  description = "Addresses that may reach the Kubernetes API from outside; none keeps it private."
  type        = set(string)
  default     = []
}

variable "admin_role_arns" {
  description = "IAM roles that administer the cluster, the one that runs Terraform among them."
  type        = set(string)
}

variable "deletion_protection" {
  description = "Refuse to delete the cluster; switch off and apply before destroying."
  type        = bool
  default     = true
}

variable "karpenter_version" {
  description = "Karpenter version.  Kubernetes 1.36 needs 1.13 or newer."
  type        = string
  default     = "1.14.1"
}

variable "ami_alias" {
  description = "AMI of the nodes, pinned: al2023@vYYYYMMDD.  @latest would replace nodes whenever AWS publishes."
  type        = string
}

variable "gpu_families" {
  description = "Instance families with GPUs that the image's kernels are built for; more families, more Spot."
  type        = list(string)
  default     = ["g5", "g6"]
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

variable "serving" {
  description = "ray (Ray Serve through KubeRay, its own autoscaling) or deployment (plain pods, KEDA)."
  type        = string
  default     = "ray"
}

variable "gpus_per_replica" {
  description = "GPUs of one replica; more than 1 means tensor parallel (SPECINFER_TP)."
  type        = number
  default     = 1
}

variable "replicas" {
  description = "Replicas at least and at most, and requests in flight per replica to aim at."
  type = object({
    min             = number
    max             = number
    target_requests = optional(number, 8)
  })
  default = { min = 1, max = 8 }
}

variable "busy_hours" {
  description = "With deployment: replicas kept at certain hours, by name; cron of five fields."
  type = map(object({
    start    = string
    end      = string
    timezone = optional(string, "UTC")
    replicas = number
  }))
  default = {}
}

variable "public_certificate_arn" {
  description = "Certificate of a public load balancer; null for an internal one."
  type        = string
  default     = null
}
