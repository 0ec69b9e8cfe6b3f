# Mistakes in tfvars are caught with a message that says what is allowed.

run "parallelism_is_one_of_two" {
  command = plan

  variables {
    parallelism = "pipeline"
  }

  expect_failures = [var.parallelism]
}

run "copies_bring_their_own_model" {
  command = plan

  variables {
    parallelism = "copies"
  }

  assert {
    condition     = length(module.inference_component) == 1
    error_message = "Copies need an inference component."
  }
}
