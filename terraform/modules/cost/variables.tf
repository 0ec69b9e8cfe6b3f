variable "name" {
  description = "Name of budget and monitor."
  type        = string
}

variable "project" {
  description = "Value of the Project tag whose cost is watched."
  type        = string
}

variable "monthly_budget_usd" {
  description = "Budget of a month, USD; 80 % spent or 100 % forecast is told."
  type        = number

  validation {
    condition     = var.monthly_budget_usd > 0
    error_message = "monthly_budget_usd is ${var.monthly_budget_usd}; it must be above 0."
  }
}

variable "anomaly_usd" {
  description = "An unusual cost of at least so much, USD, is told."
  type        = number
  default     = 50
}

variable "activate_tags" {
  description = "Activate the tags for cost allocation; only the payer account may."
  type        = bool
  default     = false
}

variable "topic_arn" {
  description = "Topic that is told."
  type        = string
}
