variable "name" {
  description = "Name of the stack."
  type        = string
}

variable "stage_arn" {
  description = "Stage of the REST API to stand before."
  type        = string
}

variable "requests_per_5_minutes" {
  description = "Requests of one address in 5 minutes before it is blocked."
  type        = number
  default     = 2000
}

variable "kms_key_arn" {
  description = "Key of the log group."
  type        = string
}

variable "log_retention_days" {
  description = "Days to keep the log of refused requests."
  type        = number
}
