variable "name" {
  description = "Name of the stack, the functions' prefix."
  type        = string
}

variable "package" {
  description = "Zip of lambda/ with its dependencies, built for `architecture`."
  type        = string

  validation {
    condition     = fileexists(var.package)
    error_message = "package is ${var.package}, which does not exist: build it first (README, \"Lambda package\")."
  }
}

variable "runtime" {
  description = "Python runtime that the package's wheels were built for."
  type        = string
  default     = "python3.12"
}

variable "architecture" {
  description = "arm64 (Graviton, about a fifth cheaper) or x86_64."
  type        = string
  default     = "arm64"

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "architecture is ${var.architecture}; arm64 or x86_64."
  }
}

variable "memory_mb" {
  description = "Memory of a function; its CPU share grows with it."
  type        = number
  default     = 1024
}

variable "concurrency" {
  description = "Calls of each function at once, reserved; -1 for no limit of its own."
  type        = number
  default     = 32
}

variable "streaming" {
  description = "Add the function that answers token by token."
  type        = bool
  default     = false
}

variable "stream_wrapper" {
  description = "Program in the package that takes the runtime's place to stream."
  type        = string
  default     = "/var/task/stream_bootstrap"
}

variable "endpoint" {
  description = "The SageMaker endpoint to ask."
  type = object({
    name              = string
    arn               = string
    settings_revision = string
  })
}

variable "inference_component" {
  description = "Component of the endpoint that holds the model; null when the endpoint holds it itself."
  type        = string
  default     = null
}

variable "model_id" {
  description = "Name by which clients know the model."
  type        = string
}

variable "model_revision" {
  description = "Hash of the model's weights and configuration; part of every cache key."
  type        = string

  validation {
    condition     = length(var.model_revision) > 0
    error_message = "model_revision is empty: without it answers of an older model could be served."
  }
}

variable "cache" {
  description = "The table of answers, and seconds an answer stays valid."
  type = object({
    table_name = string
    table_arn  = string
    ttl_s      = optional(number, 86400)
  })
}

variable "jobs" {
  description = "The asynchronous endpoint and where jobs are kept; null for no jobs."
  type = object({
    endpoint_name = string
    endpoint_arn  = string
    table_name    = string
    table_arn     = string
    bucket        = string
    bucket_arn    = string
  })
  default = null
}

variable "api_keys_secret_arn" {
  description = "Secret with the hashes of API keys, checked by the function; null when API Gateway checks keys."
  type        = string
  default     = null
}

variable "content_filter" {
  description = "module:function that sees every text first; null for none."
  type        = string
  default     = null
}

variable "cors_origin" {
  description = "Origin that browsers may call from."
  type        = string
  default     = "*"
}

variable "max_new_tokens" {
  description = "Most tokens a request may ask for."
  type        = number
  default     = 2048
}

variable "metrics_namespace" {
  description = "CloudWatch namespace of the functions' figures."
  type        = string
  default     = "SpecInfer"
}

variable "log_level" {
  description = "DEBUG, INFO, WARNING, ERROR or CRITICAL."
  type        = string
  default     = "INFO"
}

variable "vpc_id" {
  description = "Network of the functions."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets of the functions."
  type        = list(string)
}

variable "endpoint_security_group_id" {
  description = "Security group of the interface endpoints."
  type        = string
}

variable "gateway_prefix_lists" {
  description = "Prefix lists of the gateway endpoints, by service."
  type        = map(string)
}

variable "kms_key_arn" {
  description = "Key of the environment, logs, table, secret and jobs."
  type        = string
}

variable "log_retention_days" {
  description = "Days to keep the functions' logs."
  type        = number
}
