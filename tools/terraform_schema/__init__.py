"""Providers made of schemas alone: plan and apply Terraform with no cloud, account or registry."""
