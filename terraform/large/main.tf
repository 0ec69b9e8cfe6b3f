# A fleet: EKS, GPU nodes by Karpenter (Spot first), replicas by Ray Serve, one load balancer.

locals {
  name      = "${var.project}-${var.environment}"
  image_uri = coalesce(var.image_uri, "${module.image.repository_url}:${var.image_tag}")
  model_uri = coalesce(var.model_s3_uri, "s3://${module.model_store.bucket}/models/${var.model_revision}/")
  discovery = { "karpenter.sh/discovery" = local.name }
}

module "encryption" {
  source = "../modules/encryption"

  name = local.name
}

module "network" {
  source = "../modules/network"

  name                = local.name
  cidr                = var.cidr
  zone_count          = 3
  nat                 = true # images of operators and of CUDA come from public registries
  private_subnet_tags = merge(local.discovery, { "kubernetes.io/role/internal-elb" = "1" })
  public_subnet_tags  = { "kubernetes.io/role/elb" = "1" }
  kms_key_arn         = module.encryption.key_arn
  log_retention_days  = var.log_retention_days

  # Image layers and AWS calls stay off the NAT gateway, which is paid by the GB.
  interface_endpoints = ["ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "sqs", "sts"]
}

module "model_store" {
  source = "../modules/model_store"

  name          = local.name
  kms_key_arn   = module.encryption.key_arn
  force_destroy = var.force_destroy
}

module "image" {
  source = "../modules/image"

  name         = local.name
  kms_key_arn  = module.encryption.key_arn
  force_delete = var.force_destroy
}

module "eks" {
  source = "../modules/eks"

  name                = local.name
  kubernetes_version  = var.kubernetes_version
  subnet_ids          = module.network.private_subnet_ids
  public_access_cidrs = var.public_access_cidrs
  admin_role_arns     = var.admin_role_arns
  deletion_protection = var.deletion_protection
  kms_key_arn         = module.encryption.key_arn
  log_retention_days  = var.log_retention_days
}

module "karpenter" {
  source = "../modules/karpenter"

  cluster_name      = module.eks.name
  karpenter_version = var.karpenter_version
  kms_key_arn       = module.encryption.key_arn

  depends_on = [module.eks]
}

module "node_pools" {
  source = "../modules/node_pools"

  cluster_name      = module.eks.name
  node_role_name    = module.karpenter.node_role_name
  security_group_id = module.eks.security_group_id
  ami_alias         = var.ami_alias
  gpu_families      = var.gpu_families
  gpu_limits        = var.gpu_limits
  tags              = local.tags

  depends_on = [module.karpenter]
}

module "ingress" {
  source = "../modules/ingress"

  cluster_name           = module.eks.name
  vpc_id                 = module.network.vpc_id
  vpc_arn                = module.network.vpc_arn
  node_security_group_id = module.eks.security_group_id

  depends_on = [module.eks]
}

module "gpu_serving" {
  source = "../modules/gpu_serving"

  cluster_name           = module.eks.name
  serving                = var.serving
  image                  = local.image_uri
  model_s3_uri           = local.model_uri
  environment            = var.server_settings
  gpus_per_replica       = var.gpus_per_replica
  replicas               = var.replicas
  busy_hours             = var.busy_hours
  public_certificate_arn = var.public_certificate_arn
  vpc_cidr               = module.network.cidr
  kms_key_arn            = module.encryption.key_arn

  depends_on = [module.node_pools, module.ingress]
}

# Alarms of SageMaker and API Gateway do not apply here; the topic serves budget and anomalies.
resource "aws_sns_topic" "alarms" {
  name              = "${local.name}-alarms"
  kms_master_key_id = module.encryption.key_arn
}

resource "aws_sns_topic_policy" "alarms" {
  arn = aws_sns_topic.alarms.arn

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "ServicesThatTell"
      Effect    = "Allow"
      Principal = { Service = ["budgets.amazonaws.com", "cloudwatch.amazonaws.com", "costalerts.amazonaws.com"] }
      Action    = "sns:Publish"
      Resource  = aws_sns_topic.alarms.arn
      Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id } }
    }]
  })
}

data "aws_caller_identity" "current" {}

resource "aws_sns_topic_subscription" "alarms" {
  for_each = var.alarm_emails

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.key
}

module "audit" {
  source = "../modules/audit"

  name               = local.name
  model_bucket_arn   = module.model_store.bucket_arn
  force_destroy      = var.force_destroy
  kms_key_arn        = module.encryption.key_arn
  log_retention_days = var.log_retention_days
}

module "cost" {
  source = "../modules/cost"

  name               = local.name
  project            = var.project
  monthly_budget_usd = var.monthly_budget_usd
  activate_tags      = var.activate_cost_tags
  topic_arn          = aws_sns_topic.alarms.arn
}
