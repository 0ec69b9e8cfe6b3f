# The two ways of serving differ in what stands behind the load balancer.

run "ray_serves_by_default" {
  command = plan

  assert {
    condition     = output.service == "http://specinfer-serve-svc.specinfer:8000"
    error_message = "KubeRay names the service after the RayService."
  }
}

run "a_plain_deployment_is_the_container_itself" {
  command = plan

  variables {
    serving = "deployment"
  }

  assert {
    condition     = output.service == "http://specinfer.specinfer:8080"
    error_message = "The container listens on 8080."
  }
}
