output "bucket" {
  description = "Bucket of inputs and answers."
  value       = { name = module.bucket.name, arn = module.bucket.arn }
}

output "table" {
  description = "Table of jobs."
  value       = { name = aws_dynamodb_table.this.name, arn = aws_dynamodb_table.this.arn }
}

output "topics" {
  description = "Topics told of each job's end."
  value       = { for kind, topic in aws_sns_topic.this : kind => topic.arn }
}
