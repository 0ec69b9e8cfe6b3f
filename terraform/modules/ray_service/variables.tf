variable "namespace" {
  description = "Namespace of the objects."
  type        = string
}

variable "labels" {
  description = "Labels of everything that belongs to the service."
  type        = map(string)
}

variable "service_name" {
  description = "Name of the service in front of the replicas."
  type        = string
}

variable "pod" {
  description = "Pod specification of a replica, without its containers."
  type        = any
}

variable "container" {
  description = "What every serving container has: image, environment, resources, mounts."
  type        = any
}

variable "replicas" {
  description = "Replicas at least and at most, and requests in flight per replica to aim at."
  type        = object({ min = number, max = number, target_requests = number })
}

variable "gpus_per_replica" {
  description = "GPUs of one replica."
  type        = number
}

variable "grace_s" {
  description = "Seconds a replica may go on answering after it was told to stop."
  type        = number
}

variable "ray_version" {
  description = "Ray version inside the image."
  type        = string
}
