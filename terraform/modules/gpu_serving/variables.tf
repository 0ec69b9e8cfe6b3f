variable "cluster_name" {
  description = "Name of the cluster."
  type        = string
}

variable "serving" {
  description = "ray (Ray Serve through KubeRay, its own autoscaling) or deployment (plain pods, KEDA)."
  type        = string
  default     = "ray"

  validation {
    condition     = contains(["ray", "deployment"], var.serving)
    error_message = "serving is ${var.serving}; ray or deployment."
  }
}

variable "image" {
  description = "Image of the model server, with Ray in it when `serving` is ray."
  type        = string
}

variable "model_s3_uri" {
  description = "Folder of the model, uncompressed."
  type        = string

  validation {
    condition     = can(regex("^s3://[^/]+/.+/$", var.model_s3_uri))
    error_message = "model_s3_uri is ${var.model_s3_uri}; write s3://bucket/prefix/ with the last slash."
  }
}

variable "environment" {
  description = "Settings of the model server, SPECINFER_*."
  type        = map(string)
  default     = {}
}

variable "gpus_per_replica" {
  description = "GPUs of one replica; more than 1 means tensor parallel (SPECINFER_TP)."
  type        = number
  default     = 1
}

variable "replicas" {
  description = "Replicas at least and at most, and requests in flight per replica to aim at."
  type = object({
    min             = number
    max             = number
    target_requests = optional(number, 8)
  })
  default = { min = 1, max = 8 }

  validation {
    condition     = var.replicas.min >= 0 && var.replicas.max >= max(1, var.replicas.min)
    error_message = "replicas is ${var.replicas.min} to ${var.replicas.max}; 0 <= min <= max and max >= 1."
  }
}

variable "busy_hours" {
  description = "With deployment: replicas kept at certain hours, by name; cron of five fields."
  type = map(object({
    start    = string
    end      = string
    timezone = optional(string, "UTC")
    replicas = number
  }))
  default = {}
}

variable "prometheus_address" {
  description = "With deployment: Prometheus that scrapes the replicas, asked by KEDA."
  type        = string
  default     = "http://prometheus-server.monitoring:80"
}

variable "public_certificate_arn" {
  description = "Certificate of a public load balancer; null for an internal one."
  type        = string
  default     = null
}

variable "vpc_cidr" {
  description = "Addresses that may reach the replicas."
  type        = string
}

variable "kms_key_arn" {
  description = "Key of the model."
  type        = string
}

variable "ray_version" {
  description = "Ray version inside the image."
  type        = string
  default     = "2.60.0"
}

variable "kuberay_version" {
  description = "Version of the KubeRay operator's chart."
  type        = string
  default     = "1.7.0"
}

variable "keda_version" {
  description = "Version of KEDA's chart."
  type        = string
  default     = "2.20.2"
}

variable "aws_cli_image" {
  description = "Image that copies the model from S3."
  type        = string
  default     = "public.ecr.aws/aws-cli/aws-cli:2.27.0"
}
