# The cache of deterministic answers: one key, an expiry, and nothing else to index.

resource "aws_dynamodb_table" "this" {
  name                        = "${var.name}-responses"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "cache_key"
  deletion_protection_enabled = var.deletion_protection

  attribute {
    name = "cache_key"
    type = "S"
  }

  # Epoch seconds.  DynamoDB deletes late, up to days, so the gateway checks it on reading too.
  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled     = true
    kms_key_arn = var.kms_key_arn
  }
}
