variable "name" {
  description = "Name of the endpoint; it stays the same through every update."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9](-?[a-z0-9]){0,39}$", var.name))
    error_message = "name is ${var.name}; at most 40 lower-case letters, digits and inner hyphens (ARNs of endpoints are in lower case)."
  }
}

variable "enabled" {
  description = "Keep the endpoint running.  Off removes everything that costs money by the hour."
  type        = bool
  default     = true
}

variable "image" {
  description = "Image of the model server, repository and tag."
  type        = string
}

variable "image_repository_arn" {
  description = "ARN of the image's repository; the role may pull from no other."
  type        = string
}

variable "model_s3_uri" {
  description = "Folder of the model, uncompressed."
  type        = string

  validation {
    condition     = can(regex("^s3://[^/]+/.+/$", var.model_s3_uri))
    error_message = "model_s3_uri is ${var.model_s3_uri}; write s3://bucket/prefix/ with the last slash, or SageMaker takes it for one object."
  }
}

variable "environment" {
  description = "Settings of the model server, SPECINFER_*."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.environment) : startswith(name, "SPECINFER_")])
    error_message = "environment has ${join(", ", keys(var.environment))}; every name must start with SPECINFER_."
  }
}

variable "instance_type" {
  description = "Instance type of the endpoint."
  type        = string
  default     = "ml.g5.xlarge"

  validation {
    condition     = can(regex("^ml\\.g[56]\\.(2|4|8|12|16|24|48)?xlarge$", var.instance_type))
    error_message = "instance_type is ${var.instance_type}; the image's kernels are built for ml.g5 and ml.g6."
  }
}

variable "inference_ami_version" {
  description = "AMI of the instances; torch built for CUDA 13 needs the driver of gpu-4-1."
  type        = string
  default     = "al2023-ami-sagemaker-inference-gpu-4-1"
}

variable "startup_timeout_s" {
  description = "Seconds allowed for the model's download, and again until /ping answers 200."
  type        = number
  default     = 900

  validation {
    condition     = var.startup_timeout_s >= 60 && var.startup_timeout_s <= 3600
    error_message = "startup_timeout_s is ${var.startup_timeout_s}; SageMaker takes 60 to 3600."
  }
}

variable "scaling" {
  description = "Instances at least and at most, and requests in flight per instance to aim at."
  type = object({
    min_instances      = number
    max_instances      = number
    target_concurrency = optional(number, 8)
  })
  default = { min_instances = 1, max_instances = 1 }

  validation {
    condition     = var.scaling.min_instances >= 0 && var.scaling.max_instances >= max(1, var.scaling.min_instances)
    error_message = "scaling is ${var.scaling.min_instances} to ${var.scaling.max_instances} instances; 0 <= min <= max and max >= 1."
  }

  validation {
    condition     = var.scaling.min_instances > 0 || var.async != null || var.by_components
    error_message = "scaling.min_instances is 0, which needs `async` or `by_components`: a plain real-time variant keeps one instance."
  }
}

variable "schedule" {
  description = "Other limits at other hours, by name: cron(minute hour day month weekday year)."
  type = map(object({
    cron          = string
    timezone      = optional(string, "UTC")
    min_instances = number
    max_instances = number
  }))
  default = {}
}

variable "rollout" {
  description = "How an update takes over: all_at_once or canary (both double the instances for a while), or rolling."
  type        = string
  default     = "all_at_once"

  validation {
    condition     = contains(["all_at_once", "canary", "rolling"], var.rollout)
    error_message = "rollout is ${var.rollout}; all_at_once, canary or rolling."
  }
}

variable "async" {
  description = "Make the endpoint asynchronous: where answers go, who is told, requests at once per instance."
  type = object({
    bucket_arn        = string
    output_s3_uri     = string
    failure_s3_uri    = string
    success_topic_arn = string
    error_topic_arn   = string
    concurrency       = optional(number, 8)
  })
  default = null
}

variable "by_components" {
  description = "Leave the model to inference components, which have their own number of copies and GPUs."
  type        = bool
  default     = false
}

variable "vpc_id" {
  description = "Network of the containers."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets of the containers."
  type        = list(string)
}

variable "s3_prefix_list_id" {
  description = "Prefix list of the S3 gateway endpoint, the only place the containers reach."
  type        = string
}

variable "kms_key_arn" {
  description = "Key of the model objects, the log group and asynchronous answers."
  type        = string
}

variable "volume_kms_key_arn" {
  description = "Key of the instances' EBS volumes.  g5 and g6 keep models on local NVMe, encrypted by hardware, which this key does not cover."
  type        = string
  default     = null
}

variable "log_retention_days" {
  description = "Days to keep the containers' logs."
  type        = number
}

variable "alarm_topic_arns" {
  description = "Topics told of server errors."
  type        = list(string)
  default     = []
}
