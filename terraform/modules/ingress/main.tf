# The controller that turns an Ingress into an application load balancer.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  partition = data.aws_partition.current.partition
  scope     = "${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}"
  elb       = "arn:${local.partition}:elasticloadbalancing:${local.scope}"
  balancers = ["${local.elb}:loadbalancer/app/*", "${local.elb}:targetgroup/*"]
  listeners = ["${local.elb}:listener/app/*", "${local.elb}:listener-rule/app/*"]
  groups    = "arn:${local.partition}:ec2:${local.scope}:security-group/*"
  owns      = { "aws:ResourceTag/elbv2.k8s.aws/cluster" = var.cluster_name }
  owned     = { "aws:RequestTag/elbv2.k8s.aws/cluster" = var.cluster_name }
}

resource "aws_iam_role" "this" {
  name_prefix = "${var.cluster_name}-ingress-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "pods.eks.amazonaws.com" }
      Action    = ["sts:AssumeRole", "sts:TagSession"]
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  name = "manage-load-balancers"
  role = aws_iam_role.this.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "LookAround" # describing knows no resource
        Effect   = "Allow"
        Resource = ["*"]
        Action = [
          "acm:ListCertificates",
          "ec2:DescribeAccountAttributes",
          "ec2:DescribeAddresses",
          "ec2:DescribeAvailabilityZones",
          "ec2:DescribeInstances",
          "ec2:DescribeInternetGateways",
          "ec2:DescribeNetworkInterfaces",
          "ec2:DescribeRouteTables",
          "ec2:DescribeSecurityGroups",
          "ec2:DescribeSubnets",
          "ec2:DescribeTags",
          "ec2:DescribeVpcs",
          "elasticloadbalancing:DescribeListenerAttributes",
          "elasticloadbalancing:DescribeListenerCertificates",
          "elasticloadbalancing:DescribeListeners",
          "elasticloadbalancing:DescribeLoadBalancerAttributes",
          "elasticloadbalancing:DescribeLoadBalancers",
          "elasticloadbalancing:DescribeRules",
          "elasticloadbalancing:DescribeSSLPolicies",
          "elasticloadbalancing:DescribeTags",
          "elasticloadbalancing:DescribeTargetGroupAttributes",
          "elasticloadbalancing:DescribeTargetGroups",
          "elasticloadbalancing:DescribeTargetHealth",
        ]
      },
      {
        Sid       = "CreateTagged"
        Effect    = "Allow"
        Action    = ["elasticloadbalancing:AddTags", "elasticloadbalancing:CreateLoadBalancer", "elasticloadbalancing:CreateTargetGroup"]
        Resource  = local.balancers
        Condition = { StringEquals = local.owned }
      },
      {
        Sid    = "ManageItsOwn"
        Effect = "Allow"
        Action = [
          "elasticloadbalancing:AddTags",
          "elasticloadbalancing:CreateListener",
          "elasticloadbalancing:DeleteLoadBalancer",
          "elasticloadbalancing:DeleteTargetGroup",
          "elasticloadbalancing:DeregisterTargets",
          "elasticloadbalancing:ModifyLoadBalancerAttributes",
          "elasticloadbalancing:ModifyTargetGroup",
          "elasticloadbalancing:ModifyTargetGroupAttributes",
          "elasticloadbalancing:RegisterTargets",
          "elasticloadbalancing:RemoveTags",
          "elasticloadbalancing:SetIpAddressType",
          "elasticloadbalancing:SetSecurityGroups",
          "elasticloadbalancing:SetSubnets",
        ]
        Resource  = local.balancers
        Condition = { StringEquals = local.owns }
      },
      {
        Sid    = "ManageItsListeners"
        Effect = "Allow"
        Action = [
          "elasticloadbalancing:AddListenerCertificates",
          "elasticloadbalancing:AddTags",
          "elasticloadbalancing:CreateRule",
          "elasticloadbalancing:DeleteListener",
          "elasticloadbalancing:DeleteRule",
          "elasticloadbalancing:ModifyListener",
          "elasticloadbalancing:ModifyListenerAttributes",
          "elasticloadbalancing:ModifyRule",
          "elasticloadbalancing:RemoveListenerCertificates",
          "elasticloadbalancing:RemoveTags",
          "elasticloadbalancing:SetRulePriorities",
        ]
        Resource = local.listeners
      },
      {
        Sid      = "CreateSecurityGroups"
        Effect   = "Allow"
        Action   = ["ec2:CreateSecurityGroup"]
        Resource = [local.groups, var.vpc_arn]
      },
      {
        Sid       = "TagNewSecurityGroups"
        Effect    = "Allow"
        Action    = ["ec2:CreateTags"]
        Resource  = [local.groups]
        Condition = { StringEquals = merge(local.owned, { "ec2:CreateAction" = "CreateSecurityGroup" }) }
      },
      {
        Sid       = "ManageItsSecurityGroups"
        Effect    = "Allow"
        Action    = ["ec2:AuthorizeSecurityGroupIngress", "ec2:DeleteSecurityGroup", "ec2:RevokeSecurityGroupIngress"]
        Resource  = [local.groups]
        Condition = { StringEquals = local.owns }
      },
      {
        Sid      = "OpenNodesToTheLoadBalancer"
        Effect   = "Allow"
        Action   = ["ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress"]
        Resource = ["arn:${local.partition}:ec2:${local.scope}:security-group/${var.node_security_group_id}"]
      },
    ]
  })
}

resource "aws_eks_pod_identity_association" "this" {
  cluster_name    = var.cluster_name
  namespace       = "kube-system"
  service_account = "aws-load-balancer-controller"
  role_arn        = aws_iam_role.this.arn
}

resource "helm_release" "this" {
  name       = "aws-load-balancer-controller"
  namespace  = "kube-system"
  repository = "https://aws.github.io/eks-charts"
  chart      = "aws-load-balancer-controller"
  version    = var.chart_version

  set = [
    { name = "clusterName", value = var.cluster_name },
    { name = "vpcId", value = var.vpc_id },
    { name = "serviceAccount.name", value = "aws-load-balancer-controller" },
    { name = "enableShield", value = "false" },
    { name = "enableWaf", value = "false" },
    { name = "enableWafv2", value = "false" },
  ]

  depends_on = [aws_eks_pod_identity_association.this, aws_iam_role_policy.this]
}
