output "topic_arn" {
  description = "Topic of all alarms."
  value       = aws_sns_topic.this.arn
}

output "dashboard_url" {
  description = "The dashboard in the console."
  value       = "https://${local.region}.console.aws.amazon.com/cloudwatch/home?region=${local.region}#dashboards/dashboard/${aws_cloudwatch_dashboard.this.dashboard_name}"
}
