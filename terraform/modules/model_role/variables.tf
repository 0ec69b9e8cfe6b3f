variable "name" {
  description = "Name of the endpoint, the role's prefix."
  type        = string
}

variable "model_s3_uri" {
  description = "Folder of the model: the only objects the role may read."
  type        = string
}

variable "image_repository_arn" {
  description = "Repository the role may pull from."
  type        = string
}

variable "log_group_arn" {
  description = "Log group the role may write to."
  type        = string
}

variable "kms_key_arn" {
  description = "Key of the model and of asynchronous answers."
  type        = string
}

variable "async" {
  description = "Bucket and topics of an asynchronous endpoint; null for a real-time one."
  type = object({
    bucket_arn        = string
    success_topic_arn = string
    error_topic_arn   = string
  })
  default = null
}
