# Four copies on four GPUs bring the model by inference components.

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
