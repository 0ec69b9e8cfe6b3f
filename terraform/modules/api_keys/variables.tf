variable "name" {
  description = "Name of the stack, the secret's prefix."
  type        = string
}

variable "kms_key_arn" {
  description = "Key that encrypts the secret."
  type        = string
}

variable "recovery_window_days" {
  description = "Days a deleted secret can be restored; 0 deletes at once."
  type        = number
  default     = 7
}
