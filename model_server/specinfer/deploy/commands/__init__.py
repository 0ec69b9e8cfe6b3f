"""The command lines of deployment, one module each."""
