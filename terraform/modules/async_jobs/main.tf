# Where asynchronous jobs are kept: inputs and answers in a bucket, their state in a table, and
# two topics that SageMaker tells of each end.

module "bucket" {
  source = "../bucket"

  name               = "${var.name}-jobs"
  kms_key_arn        = var.kms_key_arn
  force_destroy      = var.force_destroy
  expire_days        = var.keep_days
  keep_replaced_days = 1
}

resource "aws_dynamodb_table" "this" {
  name         = "${var.name}-jobs"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "job_id"

  attribute {
    name = "job_id"
    type = "S"
  }

  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled     = true
    kms_key_arn = var.kms_key_arn
  }
}

resource "aws_sns_topic" "this" {
  for_each = toset(["success", "error"])

  name              = "${var.name}-jobs-${each.key}"
  kms_master_key_id = var.kms_key_arn
}
