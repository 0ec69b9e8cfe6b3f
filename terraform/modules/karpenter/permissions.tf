# What nodes and controller may do.
# https://karpenter.sh/docs/reference/cloudformation/ explains each permission.

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
