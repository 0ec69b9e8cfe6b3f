owner              = "ml-platform"
model_id           = "HuggingFaceTB/SmolLM2-135M-Instruct"
model_revision     = "0000000000000000" # printed by the model server; see README
alarm_emails       = ["oncall@example.com"]
monthly_budget_usd = 1300

server_settings = {
  SPECINFER_DTYPE        = "float16"
  SPECINFER_MAX_BATCH    = "16"
  SPECINFER_CACHE_TOKENS = "65536"
}
