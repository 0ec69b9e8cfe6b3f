# The secret with hashes of API keys.  Terraform makes the box, never the content, so no key and
# no hash is ever in a plan or a state; README tells how to put one in and how to rotate.

resource "aws_secretsmanager_secret" "this" {
  name_prefix             = "${var.name}-api-keys-"
  description             = "SHA-256 hashes of the API keys of ${var.name}"
  kms_key_id              = var.kms_key_arn
  recovery_window_in_days = var.recovery_window_days
}
