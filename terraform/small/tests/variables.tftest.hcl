# Mistakes in tfvars are caught; a switched-off endpoint leaves nothing that costs by the hour.

run "logs_must_end" {
  command = plan

  variables {
    log_retention_days = 0
  }

  expect_failures = [var.log_retention_days]
}

run "switched_off_costs_no_instance" {
  command = plan

  variables {
    enable_endpoint = false
  }

  assert {
    condition     = module.model_endpoint.model_name == null
    error_message = "A model is planned although the endpoint is off."
  }
}
