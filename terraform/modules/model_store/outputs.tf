output "bucket" {
  description = "Name of the bucket."
  value       = module.bucket.name
}

output "bucket_arn" {
  description = "ARN of the bucket."
  value       = module.bucket.arn
}
