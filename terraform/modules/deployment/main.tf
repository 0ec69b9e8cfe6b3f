# The replicas as a plain Deployment, scaled by KEDA on requests in flight and by the clock.

locals {
  probe = { httpGet = { path = "/ping", port = 8080 }, periodSeconds = 10, timeoutSeconds = 2 }

  deployment_objects = [
    {
      apiVersion = "apps/v1"
      kind       = "Deployment"
      metadata   = { name = "specinfer", namespace = var.namespace, labels = var.labels }
      spec = {
        # No `replicas`: KEDA's.
        strategy = { type = "RollingUpdate", rollingUpdate = { maxUnavailable = 0, maxSurge = 1 } }
        selector = { matchLabels = merge(var.labels, { "specinfer/part" = "replica" }) }
        template = {
          metadata = {
            labels = merge(var.labels, { "specinfer/part" = "replica" })
            annotations = {
              "karpenter.sh/do-not-disrupt" = "true"
              "prometheus.io/scrape"        = "true"
              "prometheus.io/port"          = "8080"
              "prometheus.io/path"          = "/metrics"
            }
          }
          spec = merge(var.pod, {
            topologySpreadConstraints = [{
              maxSkew           = 1
              topologyKey       = "topology.kubernetes.io/zone"
              whenUnsatisfiable = "ScheduleAnyway"
              labelSelector     = { matchLabels = var.labels }
            }]
            containers = [merge(var.container, {
              name           = "model-server"
              args           = ["serve"]
              ports          = [{ name = "http", containerPort = 8080 }]
              startupProbe   = merge(local.probe, { failureThreshold = 90 }) # 15 min to load
              readinessProbe = merge(local.probe, { failureThreshold = 2 })
              livenessProbe  = merge(local.probe, { failureThreshold = 6 })
              # The load balancer needs a moment to stop sending before the server stops taking.
              lifecycle = { preStop = { sleep = { seconds = 15 } } }
            })]
          })
        }
      }
    },
    {
      apiVersion = "v1"
      kind       = "Service"
      metadata   = { name = var.service_name, namespace = var.namespace, labels = var.labels }
      spec = {
        selector            = merge(var.labels, { "specinfer/part" = "replica" })
        ports               = [{ name = "http", port = 8080, targetPort = "http" }]
        trafficDistribution = "PreferSameZone"
      }
    },
    {
      apiVersion = "keda.sh/v1alpha1"
      kind       = "ScaledObject"
      metadata   = { name = "specinfer", namespace = var.namespace }
      spec = {
        scaleTargetRef  = { name = "specinfer" }
        minReplicaCount = var.replicas.min
        maxReplicaCount = var.replicas.max
        cooldownPeriod  = 600
        triggers = concat(
          [{
            type = "prometheus"
            metadata = {
              serverAddress = var.prometheus_address
              query         = "sum(specinfer_queued_requests + specinfer_batch_requests)"
              threshold     = tostring(var.replicas.target_requests)
            }
          }],
          [for name, hours in var.busy_hours : {
            type     = "cron"
            metadata = { timezone = hours.timezone, start = hours.start, end = hours.end, desiredReplicas = tostring(hours.replicas) }
          }],
        )
      }
    },
  ]
}
