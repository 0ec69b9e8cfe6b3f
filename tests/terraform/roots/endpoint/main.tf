# The endpoint alone, so that rolling it can be planned and applied in a second.

terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.62"
    }
  }
}

provider "aws" {
  region = "us-east-1"
}

variable "name" {
  type = string
}

variable "revision" {
  type    = string
  default = "0000"
}

variable "image_tag" {
  type    = string
  default = "0.1.0"
}

variable "batch" {
  type    = string
  default = "16"
}

variable "enabled" {
  type    = bool
  default = true
}

module "model_endpoint" {
  source = "../terraform/modules/model_endpoint"

  name                 = var.name
  enabled              = var.enabled
  image                = "123456789012.dkr.ecr.us-east-1.amazonaws.com/specinfer:${var.image_tag}"
  image_repository_arn = "arn:aws:ecr:us-east-1:123456789012:repository/specinfer"
  model_s3_uri         = "s3://models/models/${var.revision}/"
  environment          = { SPECINFER_MAX_BATCH = var.batch }
  vpc_id               = "vpc-1"
  subnet_ids           = ["subnet-1"]
  s3_prefix_list_id    = "pl-1"
  kms_key_arn          = "arn:aws:kms:us-east-1:123456789012:key/1"
  log_retention_days   = 30
}
