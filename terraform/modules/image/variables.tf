variable "name" {
  description = "Name of the repository."
  type        = string
}

variable "kms_key_arn" {
  description = "Key that encrypts the images."
  type        = string
}

variable "keep_images" {
  description = "Images to keep; older ones expire."
  type        = number
  default     = 10
}

variable "force_delete" {
  description = "Let `terraform destroy` delete the images too."
  type        = bool
  default     = false
}
