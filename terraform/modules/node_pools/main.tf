# What Karpenter may start: GPU nodes by Spot first, a few steady nodes, and the device plugin.

resource "helm_release" "node_pools" {
  name      = "node-pools"
  namespace = "kube-system"
  chart     = "${path.module}/../../charts/objects"
  values    = [yamlencode({ objects = local.objects })]
}

locals {
  discovery = { "karpenter.sh/discovery" = var.cluster_name }

  node_class = {
    apiVersion = "karpenter.k8s.aws/v1"
    kind       = "EC2NodeClass"
    metadata   = { name = "gpu" }
    spec = {
      role                       = var.node_role_name
      amiSelectorTerms           = [{ alias = var.ami_alias }]
      subnetSelectorTerms        = [{ tags = local.discovery }]
      securityGroupSelectorTerms = [{ id = var.security_group_id }]
      instanceStorePolicy        = "RAID0" # g5 and g6 have NVMe: images and models unpack there
      metadataOptions            = { httpTokens = "required", httpPutResponseHopLimit = 1, httpEndpoint = "enabled" }
      tags                       = var.tags
      blockDeviceMappings = [{
        deviceName = "/dev/xvda"
        ebs        = { volumeType = "gp3", volumeSize = "200Gi", encrypted = true, deleteOnTermination = true }
      }]
    }
  }

  # Spot first; On-Demand when there is no Spot.
  gpu_pools = [
    for pool in [{ capacity = "spot", weight = 100 }, { capacity = "on-demand", weight = 10 }] : {
      apiVersion = "karpenter.sh/v1"
      kind       = "NodePool"
      metadata   = { name = "gpu-${pool.capacity}" }
      spec = {
        weight = pool.weight
        limits = { cpu = var.gpu_limits.cpu, memory = var.gpu_limits.memory, "nvidia.com/gpu" = var.gpu_limits.gpus }
        disruption = {
          # Consolidating a busy GPU node would kill answers under way; an empty one costs money.
          consolidationPolicy = "WhenEmpty"
          consolidateAfter    = "5m"
          budgets = [
            { nodes = "20%" },
            { nodes = "0", schedule = "0 8 * * mon-fri", duration = "10h", reasons = ["Drifted"] },
          ]
        }
        template = {
          metadata = { labels = { "specinfer/role" = "gpu" } }
          spec = {
            nodeClassRef           = { group = "karpenter.k8s.aws", kind = "EC2NodeClass", name = "gpu" }
            expireAfter            = "720h"
            terminationGracePeriod = "1h"
            taints                 = [{ key = "nvidia.com/gpu", value = "true", effect = "NoSchedule" }]
            requirements = [
              { key = "karpenter.sh/capacity-type", operator = "In", values = [pool.capacity] },
              { key = "kubernetes.io/arch", operator = "In", values = ["amd64"] },
              { key = "karpenter.k8s.aws/instance-family", operator = "In", values = var.gpu_families },
              { key = "karpenter.k8s.aws/instance-gpu-count", operator = "In", values = [for count in var.gpu_counts : tostring(count)] },
            ]
          }
        }
      }
    }
  ]

  # Ray's head and other amd64 pods that must not vanish with a Spot node.
  steady_pool = {
    apiVersion = "karpenter.sh/v1"
    kind       = "NodePool"
    metadata   = { name = "steady" }
    spec = {
      limits     = { cpu = "32", memory = "128Gi" }
      disruption = { consolidationPolicy = "WhenEmptyOrUnderutilized", consolidateAfter = "5m", budgets = [{ nodes = "1" }] }
      template = {
        metadata = { labels = { "specinfer/role" = "steady" } }
        spec = {
          nodeClassRef = { group = "karpenter.k8s.aws", kind = "EC2NodeClass", name = "gpu" }
          expireAfter  = "720h"
          requirements = [
            { key = "karpenter.sh/capacity-type", operator = "In", values = ["on-demand"] },
            { key = "kubernetes.io/arch", operator = "In", values = ["amd64"] },
            { key = "karpenter.k8s.aws/instance-category", operator = "In", values = ["m"] },
            { key = "karpenter.k8s.aws/instance-generation", operator = "Gt", values = ["6"] },
            { key = "karpenter.k8s.aws/instance-size", operator = "In", values = ["large", "xlarge"] },
          ]
        }
      }
    }
  }

  # AL2023's GPU images have the driver; what tells Kubernetes of the GPUs is this.
  device_plugin = {
    apiVersion = "apps/v1"
    kind       = "DaemonSet"
    metadata   = { name = "nvidia-device-plugin", namespace = "kube-system" }
    spec = {
      selector       = { matchLabels = { name = "nvidia-device-plugin" } }
      updateStrategy = { type = "RollingUpdate" }
      template = {
        metadata = { labels = { name = "nvidia-device-plugin" } }
        spec = {
          priorityClassName = "system-node-critical"
          nodeSelector      = { "specinfer/role" = "gpu" }
          tolerations       = [{ key = "nvidia.com/gpu", operator = "Exists", effect = "NoSchedule" }]
          containers = [{
            name            = "plugin"
            image           = var.device_plugin_image
            env             = [{ name = "FAIL_ON_INIT_ERROR", value = "true" }]
            securityContext = { allowPrivilegeEscalation = false, capabilities = { drop = ["ALL"] } }
            resources       = { requests = { cpu = "50m", memory = "64Mi" }, limits = { memory = "256Mi" } }
            volumeMounts    = [{ name = "device-plugin", mountPath = "/var/lib/kubelet/device-plugins" }]
          }]
          volumes = [{ name = "device-plugin", hostPath = { path = "/var/lib/kubelet/device-plugins" } }]
        }
      }
    }
  }

  objects = concat([local.node_class, local.steady_pool, local.device_plugin], local.gpu_pools)
}
