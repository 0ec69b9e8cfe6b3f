# GPU nodes as pods ask for them: controller, its permissions, interruption queue, node pools.
# https://karpenter.sh/docs/reference/cloudformation/ explains each permission.

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

resource "aws_iam_role" "node" {
  name = "${var.cluster_name}-gpu-node"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each = toset(local.node_policies)

  role       = aws_iam_role.node.name
  policy_arn = "arn:${local.partition}:iam::aws:policy/${each.key}"
}

resource "aws_eks_access_entry" "node" {
  cluster_name  = var.cluster_name
  principal_arn = aws_iam_role.node.arn
  type          = "EC2_LINUX"
}

resource "aws_iam_role" "controller" {
  name_prefix = "${var.cluster_name}-karpenter-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "pods.eks.amazonaws.com" }
      Action    = ["sts:AssumeRole", "sts:TagSession"]
    }]
  })
}

resource "aws_eks_pod_identity_association" "controller" {
  cluster_name    = var.cluster_name
  namespace       = "kube-system"
  service_account = "karpenter"
  role_arn        = aws_iam_role.controller.arn
}

resource "aws_iam_role_policy" "controller" {
  name = "manage-nodes"
  role = aws_iam_role.controller.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid    = "StartFromWhatExists"
        Effect = "Allow"
        Action = ["ec2:CreateFleet", "ec2:RunInstances"]
        Resource = [
          "${local.ec2}::image/*",
          "${local.ec2}::snapshot/*",
          "${local.ec2}:${local.account}:capacity-reservation/*",
          "${local.ec2}:${local.account}:security-group/*",
          "${local.ec2}:${local.account}:subnet/*",
        ]
      },
      {
        Sid       = "StartFromItsOwnTemplates"
        Effect    = "Allow"
        Action    = ["ec2:CreateFleet", "ec2:RunInstances"]
        Resource  = ["${local.ec2}:${local.account}:launch-template/*"]
        Condition = { StringEquals = local.owns }
      },
      {
        Sid    = "CreateTagged"
        Effect = "Allow"
        Action = ["ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:RunInstances"]
        Resource = [
          for kind in ["fleet", "instance", "launch-template", "network-interface", "spot-instances-request", "volume"] :
          "${local.ec2}:${local.account}:${kind}/*"
        ]
        Condition = { StringEquals = local.owned }
      },
      {
        Sid    = "TagWhatItCreates"
        Effect = "Allow"
        Action = ["ec2:CreateTags"]
        Resource = [
          for kind in ["fleet", "instance", "launch-template", "network-interface", "spot-instances-request", "volume"] :
          "${local.ec2}:${local.account}:${kind}/*"
        ]
        Condition = {
          StringEquals = merge(local.owned, {
            "ec2:CreateAction" = ["CreateFleet", "CreateLaunchTemplate", "RunInstances"]
          })
        }
      },
      {
        Sid       = "TagItsInstances"
        Effect    = "Allow"
        Action    = ["ec2:CreateTags"]
        Resource  = ["${local.ec2}:${local.account}:instance/*"]
        Condition = { StringEquals = local.owns }
      },
      {
        Sid    = "EndItsOwn"
        Effect = "Allow"
        Action = ["ec2:DeleteLaunchTemplate", "ec2:TerminateInstances"]
        Resource = [
          "${local.ec2}:${local.account}:instance/*",
          "${local.ec2}:${local.account}:launch-template/*",
        ]
        Condition = { StringEquals = local.owns }
      },
      {
        Sid       = "LookAround" # describing knows no resource
        Effect    = "Allow"
        Resource  = ["*"]
        Condition = { StringEquals = { "aws:RequestedRegion" = local.region } }
        Action = [
          "ec2:DescribeCapacityReservations",
          "ec2:DescribeImages",
          "ec2:DescribeInstances",
          "ec2:DescribeInstanceStatus",
          "ec2:DescribeInstanceTypeOfferings",
          "ec2:DescribeInstanceTypes",
          "ec2:DescribeLaunchTemplates",
          "ec2:DescribePlacementGroups",
          "ec2:DescribeSecurityGroups",
          "ec2:DescribeSpotPriceHistory",
          "ec2:DescribeSubnets",
        ]
      },
      {
        Sid      = "FindAmis"
        Effect   = "Allow"
        Action   = ["ssm:GetParameter"]
        Resource = ["arn:${local.partition}:ssm:${local.region}::parameter/aws/service/*"]
      },
      {
        Sid      = "FindPrices" # knows no resource
        Effect   = "Allow"
        Action   = ["pricing:GetProducts"]
        Resource = ["*"]
      },
      {
        Sid      = "HearOfInterruptions"
        Effect   = "Allow"
        Action   = ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"]
        Resource = [aws_sqs_queue.this.arn]
      },
      {
        Sid      = "ReadTheQueuesKey"
        Effect   = "Allow"
        Action   = ["kms:Decrypt"]
        Resource = [var.kms_key_arn]
      },
      {
        Sid       = "GiveNodesTheirRole"
        Effect    = "Allow"
        Action    = ["iam:PassRole"]
        Resource  = [aws_iam_role.node.arn]
        Condition = { StringEquals = { "iam:PassedToService" = "ec2.amazonaws.com" } }
      },
      {
        Sid       = "CreateProfiles"
        Effect    = "Allow"
        Action    = ["iam:CreateInstanceProfile", "iam:TagInstanceProfile"]
        Resource  = [local.profiles]
        Condition = { StringEquals = local.owned }
      },
      {
        Sid       = "ManageItsProfiles"
        Effect    = "Allow"
        Action    = ["iam:AddRoleToInstanceProfile", "iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"]
        Resource  = [local.profiles]
        Condition = { StringEquals = local.owns }
      },
      {
        Sid      = "ReadProfiles"
        Effect   = "Allow"
        Action   = ["iam:GetInstanceProfile"]
        Resource = [local.profiles]
      },
      {
        Sid      = "ListProfiles" # knows no resource
        Effect   = "Allow"
        Action   = ["iam:ListInstanceProfiles"]
        Resource = ["*"]
      },
      {
        Sid      = "FindTheCluster"
        Effect   = "Allow"
        Action   = ["eks:DescribeCluster"]
        Resource = ["arn:${local.partition}:eks:${local.region}:${local.account}:cluster/${var.cluster_name}"]
      },
    ]
  })
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
