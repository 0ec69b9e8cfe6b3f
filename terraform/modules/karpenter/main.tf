# GPU nodes as pods ask for them: controller and interruption queue.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  partition = data.aws_partition.current.partition
  account   = data.aws_caller_identity.current.account_id
  region    = data.aws_region.current.region
  ec2       = "arn:${local.partition}:ec2:${local.region}"
  owned     = { "aws:RequestTag/kubernetes.io/cluster/${var.cluster_name}" = "owned" }
  owns      = { "aws:ResourceTag/kubernetes.io/cluster/${var.cluster_name}" = "owned" }
  profiles  = "arn:${local.partition}:iam::${local.account}:instance-profile/*"

  node_policies = ["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly"]
}

resource "aws_sqs_queue" "this" {
  name                      = "${var.cluster_name}-interruptions"
  message_retention_seconds = 300 # a Spot warning is two minutes old at most when it matters
  kms_master_key_id         = var.kms_key_arn
}

resource "aws_sqs_queue_policy" "this" {
  queue_url = aws_sqs_queue.this.url

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "EventsOfThisAccount"
        Effect    = "Allow"
        Principal = { Service = "events.amazonaws.com" }
        Action    = "sqs:SendMessage"
        Resource  = aws_sqs_queue.this.arn
        Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
      },
      {
        Sid       = "OnlyOverTls"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = aws_sqs_queue.this.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

resource "aws_cloudwatch_event_rule" "this" {
  for_each = {
    spot-interruption = { source = "aws.ec2", type = "EC2 Spot Instance Interruption Warning" }
    rebalance         = { source = "aws.ec2", type = "EC2 Instance Rebalance Recommendation" }
    state-change      = { source = "aws.ec2", type = "EC2 Instance State-change Notification" }
    health            = { source = "aws.health", type = "AWS Health Event" }
  }

  name        = "${var.cluster_name}-${each.key}"
  description = each.value.type

  event_pattern = jsonencode({
    source        = [each.value.source]
    "detail-type" = [each.value.type]
  })
}

resource "aws_cloudwatch_event_target" "this" {
  for_each = aws_cloudwatch_event_rule.this

  rule = each.value.name
  arn  = aws_sqs_queue.this.arn
}

# Definitions in a chart of their own: helm never upgrades those inside a chart.
resource "helm_release" "definitions" {
  name       = "karpenter-crd"
  namespace  = "kube-system"
  repository = "oci://public.ecr.aws/karpenter"
  chart      = "karpenter-crd"
  version    = var.karpenter_version
}

resource "helm_release" "controller" {
  name       = "karpenter"
  namespace  = "kube-system"
  repository = "oci://public.ecr.aws/karpenter"
  chart      = "karpenter"
  version    = var.karpenter_version
  skip_crds  = true

  set = [
    { name = "settings.clusterName", value = var.cluster_name },
    { name = "settings.interruptionQueue", value = aws_sqs_queue.this.name },
    { name = "replicas", value = "2" },
    { name = "controller.resources.requests.cpu", value = "500m" },
    { name = "controller.resources.requests.memory", value = "512Mi" },
    { name = "controller.resources.limits.memory", value = "1Gi" },
  ]

  depends_on = [
    helm_release.definitions,
    aws_eks_pod_identity_association.controller,
    aws_iam_role_policy.controller,
  ]
}
