variable "name" {
  description = "Name of the API."
  type        = string
}

variable "stage" {
  description = "Name of the stage, the first part of every path."
  type        = string
  default     = "v"
}

variable "answer" {
  description = "The buffered function."
  type        = object({ function_name = string, invoke_arn = string })
}

variable "stream" {
  description = "The streaming function; null to buffer everything."
  type        = object({ function_name = string, invoke_arn = string })
  default     = null
}

variable "jobs" {
  description = "Add the routes of long-running jobs."
  type        = bool
  default     = false
}

variable "auth" {
  description = "Who checks callers: usage_plan (API Gateway's keys), function (hashes in a secret; x-api-key or Bearer) or iam (signed requests)."
  type        = string
  default     = "usage_plan"

  validation {
    condition     = contains(["usage_plan", "function", "iam"], var.auth)
    error_message = "auth is ${var.auth}; usage_plan, function or iam."
  }
}

variable "clients" {
  description = "With usage_plan: one key for each of these."
  type        = set(string)
  default     = ["default"]
}

variable "rate_limit" {
  description = "Requests a second, on average."
  type        = number
  default     = 10
}

variable "burst_limit" {
  description = "Requests at once above that."
  type        = number
  default     = 20
}

variable "daily_quota" {
  description = "With usage_plan: requests a day and key."
  type        = number
  default     = 10000
}

variable "cors_origin" {
  description = "Origin that browsers may call from."
  type        = string
  default     = "*"
}

variable "manage_account_log_role" {
  description = "Set the account's log role of API Gateway; off where another stack has."
  type        = bool
  default     = true
}

variable "kms_key_arn" {
  description = "Key of the log groups."
  type        = string
}

variable "log_retention_days" {
  description = "Days to keep access and execution logs."
  type        = number
}
