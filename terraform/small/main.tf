# Proof of concept: one ml.g5.xlarge, a REST API with keys, a cache, and everything watched.

locals {
  name      = "${var.project}-${var.environment}"
  image_uri = coalesce(var.image_uri, "${module.image.repository_url}:${var.image_tag}")
  model_uri = coalesce(var.model_s3_uri, "s3://${module.model_store.bucket}/models/${var.model_revision}/")
  package   = coalesce(var.lambda_package, "${path.root}/../../build/lambda-arm64.zip")
}

module "encryption" {
  source = "../modules/encryption"

  name = local.name
}

module "network" {
  source = "../modules/network"

  name                = local.name
  cidr                = var.cidr
  interface_endpoints = ["sagemaker.runtime"]
  kms_key_arn         = module.encryption.key_arn
  log_retention_days  = var.log_retention_days
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

module "model_endpoint" {
  source = "../modules/model_endpoint"

  name                 = local.name
  enabled              = var.enable_endpoint
  image                = local.image_uri
  image_repository_arn = coalesce(var.image_repository_arn, module.image.repository_arn)
  model_s3_uri         = local.model_uri
  environment          = merge({ SPECINFER_EMF = "true" }, var.server_settings)
  instance_type        = var.instance_type
  by_components        = var.scale_to_zero
  scaling              = { min_instances = var.scale_to_zero ? 0 : 1, max_instances = 1 }
  vpc_id               = module.network.vpc_id
  subnet_ids           = module.network.private_subnet_ids
  s3_prefix_list_id    = module.network.gateway_prefix_lists["s3"]
  kms_key_arn          = module.encryption.key_arn
  volume_kms_key_arn   = var.volume_kms_key_arn
  log_retention_days   = var.log_retention_days
  alarm_topic_arns     = [module.observability.topic_arn]
}

module "inference_component" {
  source = "../modules/inference_component"
  count  = var.enable_endpoint && var.scale_to_zero ? 1 : 0

  name          = local.name
  endpoint_name = module.model_endpoint.name
  variant       = module.model_endpoint.variant
  model_name    = module.model_endpoint.model_name
}

module "response_cache" {
  source = "../modules/response_cache"

  name        = local.name
  kms_key_arn = module.encryption.key_arn
}

module "gateway" {
  source = "../modules/gateway"

  name                       = local.name
  package                    = local.package
  endpoint                   = module.model_endpoint
  inference_component        = one(module.inference_component[*].name)
  model_id                   = var.model_id
  model_revision             = var.model_revision
  cache                      = module.response_cache
  streaming                  = var.streaming
  vpc_id                     = module.network.vpc_id
  subnet_ids                 = module.network.private_subnet_ids
  endpoint_security_group_id = module.network.endpoint_security_group_id
  gateway_prefix_lists       = module.network.gateway_prefix_lists
  kms_key_arn                = module.encryption.key_arn
  log_retention_days         = var.log_retention_days
}

module "rest_api" {
  source = "../modules/rest_api"

  name                    = local.name
  answer                  = module.gateway.answer
  stream                  = module.gateway.stream
  manage_account_log_role = var.manage_account_log_role
  kms_key_arn             = module.encryption.key_arn
  log_retention_days      = var.log_retention_days
}

module "observability" {
  source = "../modules/observability"

  name           = local.name
  endpoint       = merge(module.model_endpoint, { enabled = var.enable_endpoint })
  api_name       = module.rest_api.name
  function_names = module.gateway.function_names
  table_name     = module.response_cache.table_name
  p99_ms         = var.p99_ms
  emails         = var.alarm_emails
  kms_key_arn    = module.encryption.key_arn
}

module "audit" {
  source = "../modules/audit"
  count  = var.enable_audit ? 1 : 0

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
  topic_arn          = module.observability.topic_arn
}
