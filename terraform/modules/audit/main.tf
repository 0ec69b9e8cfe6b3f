# Who did what: management events of the account, and every read of the model bucket.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  trail_arn = "arn:${data.aws_partition.current.partition}:cloudtrail:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:trail/${var.name}"
}

module "bucket" {
  source = "../bucket"

  name               = "${var.name}-audit"
  kms_key_arn        = var.kms_key_arn
  force_destroy      = var.force_destroy
  transition         = { days = 30, storage_class = "GLACIER_IR" }
  expire_days        = var.keep_days
  keep_replaced_days = 30

  grants = [
    {
      sid     = "TrailChecksTheBucket"
      service = "cloudtrail.amazonaws.com"
      action  = "s3:GetBucketAcl"
      path    = ""
      equals  = { "aws:SourceArn" = local.trail_arn }
    },
    {
      sid     = "TrailWrites"
      service = "cloudtrail.amazonaws.com"
      action  = "s3:PutObject"
      path    = "/AWSLogs/${data.aws_caller_identity.current.account_id}/*"
      equals  = { "aws:SourceArn" = local.trail_arn, "s3:x-amz-acl" = "bucket-owner-full-control" }
    },
  ]
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/aws/cloudtrail/${var.name}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
}

resource "aws_iam_role" "this" {
  name_prefix = "${var.name}-trail-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "cloudtrail.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceArn" = local.trail_arn } }
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  name = "write-trail-logs"
  role = aws_iam_role.this.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
      Resource = ["${aws_cloudwatch_log_group.this.arn}:*"]
    }]
  })
}

resource "aws_cloudtrail" "this" {
  name                          = var.name
  s3_bucket_name                = module.bucket.name
  kms_key_id                    = var.kms_key_arn
  is_multi_region_trail         = true
  include_global_service_events = true
  enable_log_file_validation    = true
  cloud_watch_logs_group_arn    = "${aws_cloudwatch_log_group.this.arn}:*"
  cloud_watch_logs_role_arn     = aws_iam_role.this.arn

  advanced_event_selector {
    name = "Management"

    field_selector {
      field  = "eventCategory"
      equals = ["Management"]
    }
  }

  advanced_event_selector {
    name = "Models read or changed"

    field_selector {
      field  = "eventCategory"
      equals = ["Data"]
    }

    field_selector {
      field  = "resources.type"
      equals = ["AWS::S3::Object"]
    }

    field_selector {
      field       = "resources.ARN"
      starts_with = ["${var.model_bucket_arn}/"]
    }
  }
}
