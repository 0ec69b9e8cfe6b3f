# The replicas as a Ray Serve application that KubeRay runs (https://docs.ray.io/en/latest/cluster/kubernetes/).

locals {
  # specinfer.fleet:app builds the deployment; Ray Serve scales replicas, Ray asks KubeRay for
  # pods, and Karpenter for nodes.
  serve_config = {
    applications = [{
      name         = "specinfer"
      import_path  = "specinfer.fleet:app"
      route_prefix = "/"
      # A stream ends by itself, told so, before the pod that runs it is ended.
      runtime_env = {
        env_vars = merge(
          { SPECINFER_STREAM_DEADLINE_S = tostring(var.grace_s - 10) },
          { for pair in var.container.env : pair.name => pair.value },
        )
      }
      deployments = [{
        name                          = "SpecInfer"
        max_ongoing_requests          = 32
        graceful_shutdown_wait_loop_s = 2
        graceful_shutdown_timeout_s   = var.grace_s
        ray_actor_options             = { num_gpus = var.gpus_per_replica }
        autoscaling_config = {
          min_replicas            = var.replicas.min
          max_replicas            = var.replicas.max
          target_ongoing_requests = var.replicas.target_requests
          upscale_delay_s         = 30
          downscale_delay_s       = 600
        }
      }]
    }]
  }

  ray_objects = [{
    apiVersion = "ray.io/v1"
    kind       = "RayService"
    metadata   = { name = "specinfer", namespace = var.namespace }
    spec = {
      serveConfigV2                  = yamlencode(local.serve_config)
      serveService                   = { metadata = { name = var.service_name }, spec = { trafficDistribution = "PreferSameZone" } }
      rayClusterDeletionDelaySeconds = 120
      rayClusterConfig = {
        rayVersion              = var.ray_version
        enableInTreeAutoscaling = true
        autoscalerOptions       = { idleTimeoutSeconds = 300 }
        headGroupSpec = {
          rayStartParams = { num-cpus = "0", dashboard-host = "0.0.0.0" }
          template = {
            metadata = { labels = merge(var.labels, { "specinfer/part" = "head" }) }
            spec = {
              # KubeRay makes the account: the autoscaler beside the head talks to Kubernetes.
              nodeSelector = { "specinfer/role" = "steady" }
              containers = [{
                name            = "ray-head"
                image           = var.container.image
                securityContext = var.container.securityContext
                resources       = { requests = { cpu = "1", memory = "4Gi" }, limits = { memory = "4Gi" } }
                ports           = [{ name = "gcs-server", containerPort = 6379 }, { name = "dashboard", containerPort = 8265 }, { name = "client", containerPort = 10001 }, { name = "serve", containerPort = 8000 }]
              }]
            }
          }
        }
        workerGroupSpecs = [{
          groupName      = "gpu"
          replicas       = var.replicas.min
          minReplicas    = var.replicas.min
          maxReplicas    = var.replicas.max
          rayStartParams = { num-gpus = tostring(var.gpus_per_replica) }
          template = {
            metadata = {
              labels      = merge(var.labels, { "specinfer/part" = "replica" })
              annotations = { "karpenter.sh/do-not-disrupt" = "true" }
            }
            spec = merge(var.pod, {
              # Near the head when there is room: traffic between zones is paid for.
              affinity = {
                podAffinity = {
                  preferredDuringSchedulingIgnoredDuringExecution = [{
                    weight = 50
                    podAffinityTerm = {
                      topologyKey   = "topology.kubernetes.io/zone"
                      labelSelector = { matchLabels = merge(var.labels, { "specinfer/part" = "head" }) }
                    }
                  }]
                }
              }
              containers = [merge(var.container, {
                name      = "ray-worker"
                lifecycle = { preStop = { exec = { command = ["/bin/sh", "-c", "ray stop --grace-period ${var.grace_s - 10}"] } } }
              })]
            })
          }
        }]
      }
    }
  }]
}
