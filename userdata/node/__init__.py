"""What an instance runs: the boot steps and the node agent. Standard library and boto3 only, Python 3.9+."""
