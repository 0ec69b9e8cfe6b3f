# The model server on GPU nodes, as a Ray Serve application (KubeRay) or as a plain Deployment
# that KEDA scales.  Either way: probes, drain, disruption budget, one service named specinfer.

data "aws_partition" "current" {}

locals {
  namespace = "specinfer"
  account   = "specinfer" # service account
  labels    = { "app.kubernetes.io/name" = "specinfer" }
  bucket    = split("/", trimprefix(var.model_s3_uri, "s3://"))[0]
  prefix    = trimprefix(var.model_s3_uri, "s3://${local.bucket}/")
  arn       = "arn:${data.aws_partition.current.partition}:s3:::${local.bucket}"
  env       = [for name, value in merge({ HF_HUB_OFFLINE = "1" }, var.environment) : { name = name, value = value }]

  # Longest generation before SIGKILL: SPECINFER's own drain, and a margin.
  grace_s = 90

  # Copies the model to the node's NVMe before the server starts.
  fetch = {
    name            = "fetch-model"
    image           = var.aws_cli_image
    args            = ["s3", "sync", "--only-show-errors", var.model_s3_uri, "/model"]
    securityContext = { allowPrivilegeEscalation = false, capabilities = { drop = ["ALL"] } }
    resources       = { requests = { cpu = "500m", memory = "512Mi" }, limits = { memory = "2Gi" } }
    volumeMounts    = [{ name = "model", mountPath = "/model" }]
  }

  gpu_pod = {
    serviceAccountName            = local.account
    terminationGracePeriodSeconds = local.grace_s
    nodeSelector                  = { "specinfer/role" = "gpu" }
    tolerations                   = [{ key = "nvidia.com/gpu", operator = "Exists", effect = "NoSchedule" }]
    initContainers                = [local.fetch]
    volumes                       = [{ name = "model", emptyDir = {} }]
  }

  gpu_resources = {
    requests = { cpu = "3", memory = "12Gi", "nvidia.com/gpu" = tostring(var.gpus_per_replica) }
    limits   = { memory = "14Gi", "nvidia.com/gpu" = tostring(var.gpus_per_replica) }
  }

  common = [
    {
      apiVersion = "policy/v1"
      kind       = "PodDisruptionBudget"
      metadata   = { name = "specinfer", namespace = local.namespace }
      spec       = { maxUnavailable = 1, selector = { matchLabels = merge(local.labels, { "specinfer/part" = "replica" }) } }
    },
    {
      # Only the load balancer, scrapers and the replicas themselves reach the replicas.
      apiVersion = "networking.k8s.io/v1"
      kind       = "NetworkPolicy"
      metadata   = { name = "specinfer", namespace = local.namespace }
      spec = {
        podSelector = { matchLabels = local.labels }
        policyTypes = ["Ingress"]
        ingress     = [{ from = [{ ipBlock = { cidr = var.vpc_cidr } }, { podSelector = { matchLabels = local.labels } }] }]
      }
    },
    {
      apiVersion = "networking.k8s.io/v1"
      kind       = "Ingress"
      metadata = {
        name      = "specinfer"
        namespace = local.namespace
        annotations = merge(
          {
            "alb.ingress.kubernetes.io/scheme"                   = var.public_certificate_arn == null ? "internal" : "internet-facing"
            "alb.ingress.kubernetes.io/target-type"              = "ip"
            "alb.ingress.kubernetes.io/healthcheck-path"         = local.health_path
            "alb.ingress.kubernetes.io/load-balancer-attributes" = "idle_timeout.timeout_seconds=500,routing.http.drop_invalid_header_fields.enabled=true"
            "alb.ingress.kubernetes.io/target-group-attributes"  = "load_balancing.algorithm.type=least_outstanding_requests,deregistration_delay.timeout_seconds=${local.grace_s}"
          },
          var.public_certificate_arn == null ? {} : {
            "alb.ingress.kubernetes.io/certificate-arn" = var.public_certificate_arn
            "alb.ingress.kubernetes.io/listen-ports"    = jsonencode([{ HTTPS = 443 }])
            "alb.ingress.kubernetes.io/ssl-policy"      = "ELBSecurityPolicy-TLS13-1-2-2021-06"
          },
        )
      }
      spec = {
        ingressClassName = "alb"
        rules = [{
          http = { paths = [{ path = "/", pathType = "Prefix", backend = { service = { name = local.service_name, port = { number = local.service_port } } } }] }
        }]
      }
    },
  ]

  health_path  = var.serving == "ray" ? "/-/healthz" : "/ping"
  service_name = var.serving == "ray" ? "specinfer-serve-svc" : "specinfer" # KubeRay names its own
  service_port = var.serving == "ray" ? 8000 : 8080

  container = {
    image           = var.image
    env             = local.env
    securityContext = { allowPrivilegeEscalation = false, capabilities = { drop = ["ALL"] } }
    resources       = local.gpu_resources
    volumeMounts    = [{ name = "model", mountPath = "/opt/ml/model", readOnly = true }]
  }
}

module "ray_service" {
  source = "../ray_service"
  count  = var.serving == "ray" ? 1 : 0

  namespace        = local.namespace
  labels           = local.labels
  service_name     = local.service_name
  pod              = local.gpu_pod
  container        = local.container
  replicas         = var.replicas
  gpus_per_replica = var.gpus_per_replica
  grace_s          = local.grace_s
  ray_version      = var.ray_version
}

module "deployment" {
  source = "../deployment"
  count  = var.serving == "deployment" ? 1 : 0

  namespace          = local.namespace
  labels             = local.labels
  service_name       = local.service_name
  pod                = local.gpu_pod
  container          = local.container
  replicas           = var.replicas
  busy_hours         = var.busy_hours
  prometheus_address = var.prometheus_address
}

locals {
  objects = concat(local.common, flatten(concat(module.ray_service[*].objects, module.deployment[*].objects)))
}

resource "kubernetes_namespace_v1" "this" {
  metadata {
    name   = local.namespace
    labels = { "pod-security.kubernetes.io/enforce" = "baseline" }
  }
}

resource "kubernetes_service_account_v1" "this" {
  metadata {
    name      = local.account
    namespace = kubernetes_namespace_v1.this.metadata[0].name
  }

  automount_service_account_token = false
}

resource "aws_iam_role" "this" {
  name_prefix = "${var.cluster_name}-serving-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "pods.eks.amazonaws.com" }
      Action    = ["sts:AssumeRole", "sts:TagSession"]
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  name = "read-the-model"
  role = aws_iam_role.this.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "ListTheModel"
        Effect    = "Allow"
        Action    = ["s3:ListBucket"]
        Resource  = [local.arn]
        Condition = { StringLike = { "s3:prefix" = ["${local.prefix}*"] } }
      },
      {
        Sid      = "ReadTheModel"
        Effect   = "Allow"
        Action   = ["s3:GetObject"]
        Resource = ["${local.arn}/${local.prefix}*"]
      },
      {
        Sid      = "UseTheKey"
        Effect   = "Allow"
        Action   = ["kms:Decrypt"]
        Resource = [var.kms_key_arn]
      },
    ]
  })
}

resource "aws_eks_pod_identity_association" "this" {
  cluster_name    = var.cluster_name
  namespace       = local.namespace
  service_account = local.account
  role_arn        = aws_iam_role.this.arn
}

resource "helm_release" "operator" {
  for_each = {
    for name, chart in {
      kuberay-operator = { serving = "ray", repository = "https://ray-project.github.io/kuberay-helm/", version = var.kuberay_version }
      keda             = { serving = "deployment", repository = "https://kedacore.github.io/charts", version = var.keda_version }
    } : name => chart if chart.serving == var.serving
  }

  name             = each.key
  namespace        = each.key
  create_namespace = true
  repository       = each.value.repository
  chart            = each.key
  version          = each.value.version
}

resource "helm_release" "serving" {
  name      = "specinfer"
  namespace = kubernetes_namespace_v1.this.metadata[0].name
  chart     = "${path.module}/../../charts/objects"
  values    = [yamlencode({ objects = local.objects })]
  timeout   = 1800 # a GPU node, a CUDA image and a model come first

  depends_on = [
    helm_release.operator,
    kubernetes_service_account_v1.this,
    aws_eks_pod_identity_association.this,
    aws_iam_role_policy.this,
  ]
}
