owner              = "ml-platform"
model_revision     = "0000000000000000" # printed by the model server; see README
admin_role_arns    = ["arn:aws:iam::123456789012:role/platform-admin"]
ami_alias          = "al2023@v20260801" # newest: see README
alarm_emails       = ["oncall@example.com"]
monthly_budget_usd = 20000

server_settings = {
  SPECINFER_DTYPE     = "float16"
  SPECINFER_MAX_BATCH = "16"
}

busy_hours = {
  day = { start = "0 7 * * 1-5", end = "0 19 * * 1-5", replicas = 4 }
}
