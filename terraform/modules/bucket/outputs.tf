output "name" {
  description = "Name of the bucket."
  value       = aws_s3_bucket.this.id
  depends_on  = [aws_s3_bucket_policy.this]
}

output "arn" {
  description = "ARN of the bucket."
  value       = aws_s3_bucket.this.arn
}
