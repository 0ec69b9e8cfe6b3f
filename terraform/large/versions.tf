terraform {
  required_version = ">= 1.10"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.62"
    }
    helm = {
      source  = "hashicorp/helm"
      version = "~> 3.1"
    }
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = "~> 2.38"
    }
  }

  # terraform init -backend-config=bucket=... -backend-config=region=...
  backend "s3" {
    key          = "specinfer/large.tfstate"
    encrypt      = true
    use_lockfile = true
  }
}

locals {
  tags = {
    Project     = var.project
    Environment = var.environment
    Owner       = var.owner
  }

  # A token at each call instead of one in the state.
  login = ["eks", "get-token", "--cluster-name", module.eks.name, "--region", var.region]
}

provider "aws" {
  region = var.region

  default_tags {
    tags = local.tags
  }
}

provider "helm" {
  kubernetes = {
    host                   = module.eks.endpoint
    cluster_ca_certificate = base64decode(module.eks.certificate_authority)

    exec = {
      api_version = "client.authentication.k8s.io/v1"
      command     = "aws"
      args        = local.login
    }
  }
}

provider "kubernetes" {
  host                   = module.eks.endpoint
  cluster_ca_certificate = base64decode(module.eks.certificate_authority)

  exec {
    api_version = "client.authentication.k8s.io/v1"
    command     = "aws"
    args        = local.login
  }
}
