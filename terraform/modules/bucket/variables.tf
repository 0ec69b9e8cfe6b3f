variable "name" {
  description = "Prefix of the bucket's name."
  type        = string
}

variable "kms_key_arn" {
  description = "Key that encrypts the objects."
  type        = string
}

variable "force_destroy" {
  description = "Let `terraform destroy` delete the objects too."
  type        = bool
}

variable "transition" {
  description = "Storage class to move objects to, and after how many days; null to leave them."
  type        = object({ days = number, storage_class = string })
  default     = null
}

variable "expire_days" {
  description = "Days after which objects are deleted; null to keep them."
  type        = number
  default     = null
}

variable "keep_replaced_days" {
  description = "Days a replaced or deleted object stays recoverable."
  type        = number
}

variable "grants" {
  description = "What AWS services may do: action, path below the bucket, and values the request must have."
  type = list(object({
    sid     = string
    service = string
    action  = string
    path    = string
    equals  = map(string)
  }))
  default = []
}
