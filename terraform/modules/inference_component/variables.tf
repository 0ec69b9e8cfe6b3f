variable "name" {
  description = "Name of the stack, the component's prefix."
  type        = string
}

variable "endpoint_name" {
  description = "Endpoint whose instances hold the copies."
  type        = string
}

variable "variant" {
  description = "Variant of that endpoint."
  type        = string
}

variable "model_name" {
  description = "SageMaker model that each copy runs."
  type        = string
}

variable "min_copies" {
  description = "Copies at least; 0 lets the endpoint stop entirely when idle."
  type        = number
  default     = 0
}

variable "max_copies" {
  description = "Copies at most."
  type        = number
  default     = 1

  validation {
    condition     = var.max_copies >= max(1, var.min_copies)
    error_message = "max_copies is ${var.max_copies}; at least 1 and min_copies (${var.min_copies}) are needed."
  }
}

variable "gpus_per_copy" {
  description = "GPUs each copy has to itself."
  type        = number
  default     = 1
}

variable "memory_mb" {
  description = "Host memory each copy is promised, MB."
  type        = number
  default     = 8192
}

variable "target_concurrency" {
  description = "Requests in flight per copy to aim at."
  type        = number
  default     = 8
}

variable "startup_timeout_s" {
  description = "Seconds allowed for the model's download, and again until /ping answers 200."
  type        = number
  default     = 900
}
