variable "name" {
  description = "Name of the stack, the bucket's prefix."
  type        = string
}

variable "kms_key_arn" {
  description = "Key that encrypts the objects."
  type        = string
}

variable "force_destroy" {
  description = "Let `terraform destroy` delete the models too."
  type        = bool
  default     = false
}

variable "keep_replaced_days" {
  description = "Days a replaced or deleted model stays recoverable."
  type        = number
  default     = 30
}
