# Mistakes in tfvars are caught with a message that says what is allowed.

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
    condition     = length(module.model_endpoint.model_name[*]) == 0
    error_message = "A model is planned although the endpoint is off."
  }
}

run "idle_may_mean_none" {
  command = plan

  variables {
    scale_to_zero = true
  }

  assert {
    condition     = length(module.inference_component) == 1
    error_message = "Scaling to zero needs an inference component."
  }
}
