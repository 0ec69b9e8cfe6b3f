# The bucket that holds models.  Weights are written once and read at each scale-out, so from
# day 0 the storage class follows the use.

module "bucket" {
  source = "../bucket"

  name               = "${var.name}-models"
  kms_key_arn        = var.kms_key_arn
  force_destroy      = var.force_destroy
  transition         = { days = 0, storage_class = "INTELLIGENT_TIERING" }
  keep_replaced_days = var.keep_replaced_days
}
