# What the model server's role may do: read its model, pull its image, write its logs.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}

locals {
  # s3://bucket/some/prefix/ -> bucket and some/prefix/
  model_bucket = split("/", trimprefix(var.model_s3_uri, "s3://"))[0]
  model_prefix = trimprefix(var.model_s3_uri, "s3://${local.model_bucket}/")
  bucket_arn   = "arn:${data.aws_partition.current.partition}:s3:::${local.model_bucket}"

  base_statements = [
    {
      Sid       = "ListTheModel"
      Effect    = "Allow"
      Action    = ["s3:ListBucket"]
      Resource  = [local.bucket_arn]
      Condition = { StringLike = { "s3:prefix" = ["${local.model_prefix}*"] } }
    },
    {
      Sid      = "ReadTheModel"
      Effect   = "Allow"
      Action   = ["s3:GetObject"]
      Resource = ["${local.bucket_arn}/${local.model_prefix}*"]
    },
    {
      Sid      = "UseTheKey"
      Effect   = "Allow"
      Action   = ["kms:Decrypt", "kms:GenerateDataKey"]
      Resource = [var.kms_key_arn]
    },
    {
      Sid      = "PullTheImage"
      Effect   = "Allow"
      Action   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
      Resource = [var.image_repository_arn]
    },
    {
      Sid      = "LogInToTheRegistry" # this action knows no resource
      Effect   = "Allow"
      Action   = ["ecr:GetAuthorizationToken"]
      Resource = ["*"]
    },
    {
      Sid      = "WriteItsLogs"
      Effect   = "Allow"
      Action   = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
      Resource = [var.log_group_arn, "${var.log_group_arn}:*"]
    },
    {
      Sid       = "PublishItsMetrics" # no resource either, so the namespace is the limit
      Effect    = "Allow"
      Action    = ["cloudwatch:PutMetricData"]
      Resource  = ["*"]
      Condition = { StringEquals = { "cloudwatch:namespace" = ["SpecInfer", "/aws/sagemaker/Endpoints"] } }
    },
    {
      Sid    = "AttachToTheNetwork" # SageMaker does this with the role; describing knows no resource
      Effect = "Allow"
      Action = [
        "ec2:CreateNetworkInterface",
        "ec2:CreateNetworkInterfacePermission",
        "ec2:DeleteNetworkInterface",
        "ec2:DeleteNetworkInterfacePermission",
        "ec2:DescribeDhcpOptions",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
        "ec2:DescribeVpcs",
      ]
      Resource = ["*"]
    },
  ]

  async_statements = var.async == null ? [] : [
    {
      Sid      = "KeepAsynchronousAnswers"
      Effect   = "Allow"
      Action   = ["s3:GetObject", "s3:PutObject"]
      Resource = ["${var.async.bucket_arn}/*"]
    },
    {
      Sid      = "TellOfAsynchronousAnswers"
      Effect   = "Allow"
      Action   = ["sns:Publish"]
      Resource = [var.async.success_topic_arn, var.async.error_topic_arn]
    },
  ]
}

resource "aws_iam_role" "this" {
  name_prefix = "${var.name}-model-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "sagemaker.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id } }
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  name = "serve-the-model"
  role = aws_iam_role.this.id

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = concat(local.base_statements, local.async_statements)
  })
}
