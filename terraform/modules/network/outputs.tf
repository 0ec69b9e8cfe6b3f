output "vpc_id" {
  description = "Id of the network."
  value       = aws_vpc.this.id
}

output "cidr" {
  description = "Address range of the network."
  value       = aws_vpc.this.cidr_block
}

output "private_subnet_ids" {
  description = "Subnets without a route from the Internet, one a zone."
  value       = [for subnet in aws_subnet.private : subnet.id]
}

output "gateway_prefix_lists" {
  description = "Prefix list of each gateway endpoint (s3, dynamodb), for security group rules."
  value       = { for service, endpoint in aws_vpc_endpoint.gateway : service => endpoint.prefix_list_id }
}

output "endpoint_security_group_id" {
  description = "Security group of the interface endpoints."
  value       = aws_security_group.endpoints.id
}

output "vpc_arn" {
  description = "ARN of the network."
  value       = aws_vpc.this.arn
}
