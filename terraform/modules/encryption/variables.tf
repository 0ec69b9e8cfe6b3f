variable "name" {
  description = "Name of the stack; the key's alias."
  type        = string
}

variable "deletion_window_days" {
  description = "Days between destroying the stack and losing the key."
  type        = number
  default     = 30

  validation {
    condition     = var.deletion_window_days >= 7 && var.deletion_window_days <= 30
    error_message = "deletion_window_days is ${var.deletion_window_days}; KMS takes 7 to 30."
  }
}
