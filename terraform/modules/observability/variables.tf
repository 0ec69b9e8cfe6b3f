variable "name" {
  description = "Name of the stack: of the dashboard, and the alarms' prefix."
  type        = string
}

variable "endpoint" {
  description = "The endpoint to watch; its alarms exist only while it is enabled."
  type = object({
    name      = string
    variant   = string
    gpu_count = number
    enabled   = bool
  })
}

variable "api_name" {
  description = "REST API to watch; null for none, and then no gateway alarms."
  type        = string
  default     = null
}

variable "api_stage" {
  description = "Stage of that API."
  type        = string
  default     = "v"
}

variable "function_names" {
  description = "Gateway functions to watch."
  type        = set(string)
  default     = []
}

variable "table_name" {
  description = "Table of the cache."
  type        = string
  default     = null
}

variable "metrics_namespace" {
  description = "Namespace of the figures that gateway and model server publish."
  type        = string
  default     = "SpecInfer"
}

variable "p99_ms" {
  description = "p99 latency to be told of, milliseconds.  A 500-token answer lawfully takes longer than 5 s."
  type        = number
  default     = 5000

  validation {
    condition     = var.p99_ms > 0
    error_message = "p99_ms is ${var.p99_ms}; it must be above 0."
  }
}

variable "memory_percent" {
  description = "Memory in use to be told of, percent of one GPU and of the host."
  type        = number
  default     = 90

  validation {
    condition     = var.memory_percent > 0 && var.memory_percent < 100
    error_message = "memory_percent is ${var.memory_percent}; between 0 and 100, both excluded."
  }
}

variable "idle_hours" {
  description = "Hours without a request to be told of."
  type        = number
  default     = 6

  validation {
    condition     = var.idle_hours >= 1 && var.idle_hours <= 24
    error_message = "idle_hours is ${var.idle_hours}; CloudWatch looks back 24 hours at most."
  }
}

variable "min_accepted_per_step" {
  description = "Drafted tokens accepted per step, an hour's average, below which drafting is in vain."
  type        = number
  default     = 0.2
}

variable "emails" {
  description = "Who is told; each address has to confirm once."
  type        = set(string)
  default     = []
}

variable "kms_key_arn" {
  description = "Key of the topic."
  type        = string
}
