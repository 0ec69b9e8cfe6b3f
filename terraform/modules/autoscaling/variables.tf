variable "endpoint_name" {
  description = "Endpoint whose instances are counted."
  type        = string
}

variable "variant" {
  description = "Variant of that endpoint."
  type        = string
}

variable "scaling" {
  description = "Instances at least and at most, and requests per instance to aim at."
  type = object({
    min_instances      = number
    max_instances      = number
    target_concurrency = number
  })
}

variable "schedule" {
  description = "Other limits at other hours, by name."
  type = map(object({
    cron          = string
    timezone      = string
    min_instances = number
    max_instances = number
  }))
}

variable "measure" {
  description = "What to follow: concurrency (real-time) or backlog (asynchronous)."
  type        = string

  validation {
    condition     = contains(["concurrency", "backlog"], var.measure)
    error_message = "measure is ${var.measure}; concurrency or backlog."
  }
}
