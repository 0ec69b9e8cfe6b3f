# Production of one team: ml.g5.12xlarge instances that follow the load, jobs for long work, keys
# in a secret, a web ACL, canary updates.  The four GPUs of an instance serve one model together
# (tensor parallel) or four copies of it.

locals {
  name      = "${var.project}-${var.environment}"
  image_uri = coalesce(var.image_uri, "${module.image.repository_url}:${var.image_tag}")
  model_uri = coalesce(var.model_s3_uri, "s3://${module.model_store.bucket}/models/${var.model_revision}/")
  copies    = var.parallelism == "copies"
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
  zone_count          = 3
  interface_endpoints = ["sagemaker.runtime", "secretsmanager"]
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
  environment          = local.server_settings
  instance_type        = var.instance_type
  by_components        = local.copies
  scaling              = var.scaling
  schedule             = local.copies ? {} : var.schedule
  rollout              = var.rollout
  vpc_id               = module.network.vpc_id
  subnet_ids           = module.network.private_subnet_ids
  s3_prefix_list_id    = module.network.gateway_prefix_lists["s3"]
  kms_key_arn          = module.encryption.key_arn
  volume_kms_key_arn   = var.volume_kms_key_arn
  log_retention_days   = var.log_retention_days
  alarm_topic_arns     = [module.observability.topic_arn]
}

locals {
  # SPECINFER_TP: the GPUs that share one copy of the LLM (server settings, "tensor parallel").
  server_settings = merge(
    { SPECINFER_EMF = "true" },
    local.copies ? {} : { SPECINFER_TP = "4" },
    var.server_settings,
  )
}

module "inference_component" {
  source = "../modules/inference_component"
  count  = var.enable_endpoint && local.copies ? 1 : 0

  name               = local.name
  endpoint_name      = module.model_endpoint.name
  variant            = module.model_endpoint.variant
  model_name         = module.model_endpoint.model_name
  min_copies         = var.scaling.min_instances * module.model_endpoint.gpu_count
  max_copies         = var.scaling.max_instances * module.model_endpoint.gpu_count
  target_concurrency = var.scaling.target_concurrency
}

# Work longer than API Gateway waits: queued, answered into a bucket, no instance while idle.
module "async_jobs" {
  source = "../modules/async_jobs"

  name          = local.name
  force_destroy = var.force_destroy
  kms_key_arn   = module.encryption.key_arn
}

module "jobs_endpoint" {
  source = "../modules/model_endpoint"

  name                 = "${local.name}-jobs"
  enabled              = var.enable_endpoint && var.enable_jobs
  image                = local.image_uri
  image_repository_arn = coalesce(var.image_repository_arn, module.image.repository_arn)
  model_s3_uri         = local.model_uri
  environment          = local.server_settings
  instance_type        = var.instance_type
  scaling              = { min_instances = 0, max_instances = 2, target_concurrency = 16 }
  vpc_id               = module.network.vpc_id
  subnet_ids           = module.network.private_subnet_ids
  s3_prefix_list_id    = module.network.gateway_prefix_lists["s3"]
  kms_key_arn          = module.encryption.key_arn
  volume_kms_key_arn   = var.volume_kms_key_arn
  log_retention_days   = var.log_retention_days
  alarm_topic_arns     = [module.observability.topic_arn]

  async = {
    bucket_arn        = module.async_jobs.bucket.arn
    output_s3_uri     = "s3://${module.async_jobs.bucket.name}/output/"
    failure_s3_uri    = "s3://${module.async_jobs.bucket.name}/failed/"
    success_topic_arn = module.async_jobs.topics["success"]
    error_topic_arn   = module.async_jobs.topics["error"]
  }
}

module "api_keys" {
  source = "../modules/api_keys"

  name        = local.name
  kms_key_arn = module.encryption.key_arn
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
  concurrency                = var.gateway_concurrency
  cors_origin                = var.cors_origin
  api_keys_secret_arn        = module.api_keys.secret_arn
  vpc_id                     = module.network.vpc_id
  subnet_ids                 = module.network.private_subnet_ids
  endpoint_security_group_id = module.network.endpoint_security_group_id
  gateway_prefix_lists       = module.network.gateway_prefix_lists
  kms_key_arn                = module.encryption.key_arn
  log_retention_days         = var.log_retention_days

  jobs = var.enable_jobs ? {
    endpoint_name = module.jobs_endpoint.name
    endpoint_arn  = module.jobs_endpoint.arn
    table_name    = module.async_jobs.table.name
    table_arn     = module.async_jobs.table.arn
    bucket        = module.async_jobs.bucket.name
    bucket_arn    = module.async_jobs.bucket.arn
  } : null
}

module "rest_api" {
  source = "../modules/rest_api"

  name                    = local.name
  answer                  = module.gateway.answer
  stream                  = module.gateway.stream
  jobs                    = var.enable_jobs
  auth                    = "function"
  rate_limit              = var.rate_limit
  burst_limit             = 2 * var.rate_limit
  cors_origin             = var.cors_origin
  manage_account_log_role = var.manage_account_log_role
  kms_key_arn             = module.encryption.key_arn
  log_retention_days      = var.log_retention_days
}

module "waf" {
  source = "../modules/waf"
  count  = var.enable_waf ? 1 : 0

  name               = local.name
  stage_arn          = module.rest_api.stage_arn
  kms_key_arn        = module.encryption.key_arn
  log_retention_days = var.log_retention_days
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
