variable "name" {
  description = "Name of the stack, the table's prefix."
  type        = string
}

variable "kms_key_arn" {
  description = "Key that encrypts the items."
  type        = string
}

variable "deletion_protection" {
  description = "Refuse to delete the table; a cache can always be filled again."
  type        = bool
  default     = false
}
