variable "name" {
  description = "Name of the stack, the prefix of bucket, table and topics."
  type        = string
}

variable "keep_days" {
  description = "Days to keep inputs and answers."
  type        = number
  default     = 7
}

variable "force_destroy" {
  description = "Let `terraform destroy` delete inputs and answers too."
  type        = bool
  default     = false
}

variable "kms_key_arn" {
  description = "Key of bucket, table and topics."
  type        = string
}
