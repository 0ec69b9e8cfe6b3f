owner              = "ml-platform"
model_id           = "meta-llama/Llama-3.1-8B-Instruct"
model_revision     = "0000000000000000" # printed by the model server; see README
alarm_emails       = ["oncall@example.com"]
monthly_budget_usd = 12000
cors_origin        = "https://chat.example.com"

server_settings = {
  SPECINFER_DTYPE        = "bfloat16"
  SPECINFER_MAX_BATCH    = "64"
  SPECINFER_CACHE_TOKENS = "262144"
}
