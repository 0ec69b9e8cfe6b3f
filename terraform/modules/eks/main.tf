# The cluster: control plane, Graviton nodes for the system's own pods, add-ons, access.
# GPU nodes come and go with Karpenter, in a module of its own.

data "aws_partition" "current" {}

locals {
  partition = data.aws_partition.current.partition

  addons = {
    "coredns"                = {}
    "eks-pod-identity-agent" = { before_compute = true }
    "kube-proxy"             = {}
    "metrics-server"         = {}
    "vpc-cni"                = { before_compute = true, settings = { enableNetworkPolicy = "true" } }
  }

  cluster_policies = ["AmazonEKSClusterPolicy"]
  node_policies    = ["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly"]
}

resource "aws_iam_role" "cluster" {
  name_prefix = "${var.name}-cluster-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "eks.amazonaws.com" }
      Action    = ["sts:AssumeRole", "sts:TagSession"]
    }]
  })
}

resource "aws_iam_role_policy_attachment" "cluster" {
  for_each = toset(local.cluster_policies)

  role       = aws_iam_role.cluster.name
  policy_arn = "arn:${local.partition}:iam::aws:policy/${each.key}"
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/aws/eks/${var.name}/cluster"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
}

resource "aws_eks_cluster" "this" {
  name                      = var.name
  version                   = var.kubernetes_version
  role_arn                  = aws_iam_role.cluster.arn
  deletion_protection       = var.deletion_protection
  enabled_cluster_log_types = ["api", "audit", "authenticator", "controllerManager", "scheduler"]

  # Add-ons below; the self-managed ones would fight with them.
  bootstrap_self_managed_addons = false

  access_config {
    authentication_mode                         = "API"
    bootstrap_cluster_creator_admin_permissions = false
  }

  encryption_config {
    resources = ["secrets"]

    provider {
      key_arn = var.kms_key_arn
    }
  }

  vpc_config {
    subnet_ids              = var.subnet_ids
    endpoint_private_access = true
    endpoint_public_access  = length(var.public_access_cidrs) > 0
    public_access_cidrs     = length(var.public_access_cidrs) > 0 ? var.public_access_cidrs : null
  }

  upgrade_policy {
    support_type = "STANDARD" # extended support costs six times as much an hour
  }

  depends_on = [aws_iam_role_policy_attachment.cluster, aws_cloudwatch_log_group.this]
}

resource "aws_eks_access_entry" "admin" {
  for_each = var.admin_role_arns

  cluster_name  = aws_eks_cluster.this.name
  principal_arn = each.key
}

resource "aws_eks_access_policy_association" "admin" {
  for_each = aws_eks_access_entry.admin

  cluster_name  = aws_eks_cluster.this.name
  principal_arn = each.value.principal_arn
  policy_arn    = "arn:${local.partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"

  access_scope {
    type = "cluster"
  }
}

resource "aws_iam_role" "node" {
  name_prefix = "${var.name}-node-"

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

resource "aws_launch_template" "system" {
  name_prefix = "${var.name}-system-"

  # Hop limit 1: a pod cannot reach the node's role, it has its own by Pod Identity.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      volume_type           = "gp3"
      volume_size           = 30
      encrypted             = "true"
      delete_on_termination = "true"
    }
  }
}

resource "aws_eks_node_group" "system" {
  cluster_name           = aws_eks_cluster.this.name
  node_group_name_prefix = "system-"
  node_role_arn          = aws_iam_role.node.arn
  subnet_ids             = var.subnet_ids
  ami_type               = "AL2023_ARM_64_STANDARD"
  instance_types         = var.system_instance_types
  capacity_type          = "ON_DEMAND"

  scaling_config {
    min_size     = 2
    desired_size = 2
    max_size     = 3
  }

  update_config {
    max_unavailable = 1
  }

  launch_template {
    id      = aws_launch_template.system.id
    version = aws_launch_template.system.latest_version
  }

  lifecycle {
    create_before_destroy = true
    ignore_changes        = [scaling_config[0].desired_size]
  }

  depends_on = [aws_iam_role_policy_attachment.node, aws_eks_addon.before_compute]
}

resource "aws_eks_addon" "before_compute" {
  for_each = toset([for name, addon in local.addons : name if try(addon.before_compute, false)])

  cluster_name = aws_eks_cluster.this.name
  addon_name   = each.key

  # Without this the network policies of the replicas are stored and not enforced.
  configuration_values = try(jsonencode(local.addons[each.key].settings), null)
}

resource "aws_eks_addon" "this" {
  for_each = toset([for name, addon in local.addons : name if !try(addon.before_compute, false)])

  cluster_name = aws_eks_cluster.this.name
  addon_name   = each.key

  depends_on = [aws_eks_node_group.system]
}
