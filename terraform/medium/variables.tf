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
  default     = "medium"
}

variable "owner" {
  description = "Owner tag: who pays or answers for this stack."
  type        = string
}

variable "cidr" {
  description = "Address range of the network."
  type        = string
  default     = "10.41.0.0/16"
}

variable "image_uri" {
  description = "Image of the model server; null for this stack's repository and `image_tag`."
  type        = string
  default     = null
}

variable "image_repository_arn" {
  description = "ARN of the repository of `image_uri`; null for this stack's."
  type        = string
  default     = null
}

variable "image_tag" {
  description = "Tag in this stack's repository; tags are immutable there."
  type        = string
  default     = "0.1.0"
}

variable "model_id" {
  description = "Name by which clients know the model."
  type        = string
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

variable "instance_type" {
  description = "Instance type of the endpoint."
  type        = string
  default     = "ml.g5.12xlarge"
}

variable "enable_endpoint" {
  description = "Keep the endpoint running; off keeps everything that costs next to nothing."
  type        = bool
  default     = true
}

variable "parallelism" {
  description = "How one instance's GPUs serve: tensor (one model over all) or copies (one model each)."
  type        = string
  default     = "tensor"

  validation {
    condition     = contains(["tensor", "copies"], var.parallelism)
    error_message = "parallelism is ${var.parallelism}; tensor or copies."
  }
}

variable "scaling" {
  description = "Instances at least and at most, and requests in flight per instance (or copy) to aim at."
  type = object({
    min_instances      = number
    max_instances      = number
    target_concurrency = optional(number, 16)
  })
  default = { min_instances = 1, max_instances = 4 }
}

variable "schedule" {
  description = "Other limits at other hours, by name; with copies, their own scaling follows the load instead."
  type = map(object({
    cron          = string
    timezone      = optional(string, "UTC")
    min_instances = number
    max_instances = number
  }))
  default = {
    night = { cron = "cron(0 20 * * ? *)", min_instances = 1, max_instances = 1 }
    day   = { cron = "cron(0 6 ? * MON-FRI *)", min_instances = 1, max_instances = 4 }
  }
}

variable "rollout" {
  description = "How an update takes over: all_at_once, canary (both double the instances for a while) or rolling."
  type        = string
  default     = "canary"
}

variable "enable_jobs" {
  description = "Add an asynchronous endpoint, without an instance while idle, and the routes of jobs."
  type        = bool
  default     = true
}

variable "enable_waf" {
  description = "Put a web ACL before the API."
  type        = bool
  default     = true
}

variable "rate_limit" {
  description = "Requests a second that the API lets in."
  type        = number
  default     = 50
}

variable "gateway_concurrency" {
  description = "Calls of each gateway function at once."
  type        = number
  default     = 100
}

variable "cors_origin" {
  description = "Origin that browsers may call from."
  type        = string
  default     = "*"
}

variable "volume_kms_key_arn" {
  description = "Key of the instance's EBS volume; null for SageMaker's own."
  type        = string
  default     = null
}

variable "lambda_package" {
  description = "Zip of the gateway; null for build/lambda-arm64.zip at the top of the repository."
  type        = string
  default     = null
}

variable "streaming" {
  description = "Answer token by token through API Gateway."
  type        = bool
  default     = true
}

variable "manage_account_log_role" {
  description = "Set the account's log role of API Gateway; off where another stack has."
  type        = bool
  default     = true
}

variable "p99_ms" {
  description = "p99 latency to be told of, milliseconds."
  type        = number
  default     = 5000
}

variable "alarm_emails" {
  description = "Who is told of alarms, budget and anomalies."
  type        = set(string)
  default     = []
}

variable "enable_audit" {
  description = "Record management events and model reads with CloudTrail."
  type        = bool
  default     = true
}

variable "monthly_budget_usd" {
  description = "Budget of a month, USD."
  type        = number
  default     = 12000
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
