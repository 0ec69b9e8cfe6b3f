variable "name" {
  description = "Name of the trail."
  type        = string
}

variable "model_bucket_arn" {
  description = "Bucket whose objects' reads and writes are recorded."
  type        = string
}

variable "keep_days" {
  description = "Days to keep the trail."
  type        = number
  default     = 365
}

variable "force_destroy" {
  description = "Let `terraform destroy` delete the trail too."
  type        = bool
  default     = false
}

variable "kms_key_arn" {
  description = "Key of the trail, its bucket and its log group."
  type        = string
}

variable "log_retention_days" {
  description = "Days to keep the trail's events in CloudWatch Logs."
  type        = number
}
