# The dashboard: latency, tokens, trees, memory, cache, side by side.

resource "aws_cloudwatch_dashboard" "this" {
  dashboard_name = var.name
  dashboard_body = jsonencode({ widgets = local.widgets })
}

locals {
  region  = data.aws_region.current.region
  latency = ["AWS/SageMaker", "ModelLatency", "EndpointName", var.endpoint.name, "VariantName", var.endpoint.variant]
  hosts   = ["EndpointName", var.endpoint.name, "VariantName", var.endpoint.variant]
  served  = ["service", "model-server"]

  charts = [
    { title = "Model latency (µs)", metrics = [for p in ["p50", "p95", "p99"] : concat(local.latency, [{ stat = p, label = p }])] },
    {
      title = "Latency as callers see it (ms)"
      metrics = var.api_name == null ? [] : [
        for p in ["p50", "p95", "p99"] : ["AWS/ApiGateway", "Latency", "ApiName", var.api_name, "Stage", var.api_stage, { stat = p, label = p }]
      ]
    },
    { title = "Tokens per second of a request", metrics = [for p in ["p50", "p95"] : concat([var.metrics_namespace, "TokensPerSecond"], local.served, [{ stat = p, label = p }])] },
    {
      title = "Tree verification"
      metrics = [
        concat([var.metrics_namespace, "TreeVerificationSuccess"], local.served, [{ stat = "Average", label = "steps that accept a draft (%)" }]),
        concat([var.metrics_namespace, "AcceptedTokensPerStep"], local.served, [{ stat = "Average", label = "drafts accepted per step", yAxis = "right" }]),
      ]
    },
    {
      title = "Where the time goes (ms)"
      metrics = [
        for part in ["QueueTime", "DraftTime", "VerifyTime", "TimeToFirstToken"] : concat([var.metrics_namespace, part], local.served, [{ stat = "p50" }])
      ]
    },
    {
      title = "GPU (100 % a GPU, ${var.endpoint.gpu_count} GPUs)"
      metrics = [
        concat(["/aws/sagemaker/Endpoints", "GPUMemoryUtilization"], local.hosts, [{ stat = "Maximum" }]),
        concat(["/aws/sagemaker/Endpoints", "GPUUtilization"], local.hosts, [{ stat = "Average" }]),
      ]
    },
    # The pool is allocated once, so GPU memory is flat; this is the figure that tells.
    # SageMaker scrapes the container's /metrics and chooses the namespace: hence a search.
    { title = "KV cache pages", metrics = [[{ expression = "SEARCH('MetricName=(\"specinfer_kv_blocks_used\" OR \"specinfer_kv_blocks_total\")', 'Maximum')", id = "pages" }]] },
    # The gateway counts by route; the chart adds the routes up.
    {
      title = "Cache"
      metrics = [
        for outcome in ["CacheHit", "CacheMiss", "CacheBypass", "CacheError"] :
        [{ expression = "SUM(SEARCH('{${var.metrics_namespace},route,service} service=\"gateway\" MetricName=\"${outcome}\"', 'Sum'))", label = outcome, id = lower(outcome) }]
      ]
    },
    {
      title = "Requests and errors"
      metrics = [
        for metric in ["Invocations", "Invocation4XXErrors", "Invocation5XXErrors", "InvocationModelErrors"] :
        ["AWS/SageMaker", metric, "EndpointName", var.endpoint.name, "VariantName", var.endpoint.variant, { stat = "Sum" }]
      ]
    },
  ]

  widgets = [
    for index, chart in [for chart in local.charts : chart if length(chart.metrics) > 0] : {
      type   = "metric"
      x      = 12 * (index % 2)
      y      = 6 * floor(index / 2)
      width  = 12
      height = 6
      properties = {
        title   = chart.title
        region  = local.region
        period  = 60
        view    = "timeSeries"
        metrics = chart.metrics
      }
    }
  ]
}
