# make help
ENV ?= local

# An environment with an `aws_endpoint` lives in the lab: an emulated AWS and three hosts on this machine.
LAB := $(shell grep -qs '^aws_endpoint:' environments/$(ENV).yaml && echo lab)
PYTHON := .venv/bin/python
# Byte code is kept, whatever the shell says: aws-cdk-lib takes seconds to compile.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPATH := $(CURDIR)
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help setup check deploy destroy diff synth bootstrap status password mirror test lint unit proof lab-test schema snapshots picture requirements benchmark benchmark-recovery benchmark-messaging example drill drill-changes

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | column -t -s '|'

setup:
	@./setup.sh $(or $(LAB),python)

check: setup ## validate environments/$(ENV).yaml
	@$(PYTHON) -m stacks.environment check $(ENV)

deploy: check ## deploy ENV (default: local, the lab on this machine) and wait until the cluster is ready
	@$(if $(LAB),$(PYTHON) -m lab up --env $(ENV))
	@$(PYTHON) -m operations deploy --env $(ENV)

destroy: setup ## the lab: remove everything but the cache. AWS: cdk destroy (protected stacks refuse)
	@$(if $(LAB),$(PYTHON) -m lab down --env $(ENV),$(PYTHON) -m operations cdk --env $(ENV) destroy --all)

diff: check ## what a deploy of ENV would change
	@$(PYTHON) -m operations cdk --env $(ENV) diff --all

synth: check ## the CloudFormation templates of ENV, in cdk.out
	@$(PYTHON) -m operations cdk --env $(ENV) synth --quiet

bootstrap: check ## once for each AWS account and region
	@$(PYTHON) -m operations cdk --env $(ENV) bootstrap

status: setup ## nodes, endpoints and health of ENV
	@$(PYTHON) -m operations status --env $(ENV)

password: setup ## the administrator's password of ENV
	@$(PYTHON) -m operations password --env $(ENV)

mirror: check ## copy the version profile's artefacts into ENV's own bucket
	@$(PYTHON) -m operations artifacts mirror --env $(ENV)

test: ## everything CI runs
	@./setup.sh lab
	@$(MAKE) lint unit proof lab-test

lint: setup ## ruff, mypy, shellcheck, cfn-lint, cdk-nag
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
	@.venv/bin/mypy
	@git ls-files -z '*.sh' .ci/run lab/hostfs/usr/sbin/mount.efs | xargs -0 .venv/bin/shellcheck
	@.venv/bin/pytest -q -n 2 tests/synth/test_guidelines.py # cfn-lint and cdk-nag

unit: setup ## unit and synth tests
	@.venv/bin/pytest -q -n 2 --dist loadgroup tests/unit tests/synth -m "not proof" --ignore tests/synth/test_guidelines.py

proof: setup ## messages that take effect once: a process killed at every point, any interleaving
	@.venv/bin/pytest -q -n 2 tests/unit/messaging -m proof

lab-test: ## what needs a lab: deploys it, uses it, breaks it, destroys it
	@./setup.sh lab
	@.venv/bin/pytest -q -x tests/lab

schema: setup ## environments/schema.json from the model
	@$(PYTHON) -m stacks.environment schema > environments/schema.json

picture: setup ## docs/architecture.svg
	@$(PYTHON) docs/architecture.py docs/architecture.svg

benchmark: ## times of deploy and synth, as a table
	@./setup.sh lab
	@$(PYTHON) benchmarks/deploy.py

benchmark-recovery: setup ## losses, rolls and random faults against ENV's first formation: about an hour
	@$(PYTHON) -m benchmarks.recovery --env $(ENV)

benchmark-messaging: setup ## what inbox and outbox cost, against ENV's lab
	@$(PYTHON) -m benchmarks.messaging --env $(ENV)

example: setup ## a shop with outbox, inbox and e-mails (examples/orders), against ENV's lab
	@$(PYTHON) -m examples.orders --env $(ENV)

drill: setup ## every drill against ENV (DRILL: which ones), with a report in drill-report
	@$(PYTHON) -m operations drill $(or $(DRILL),all) --env $(ENV)

drill-changes: ## changes that roll through the cluster: a deploy, three refreshes, three ends at once. In a lab of its own
	@./setup.sh lab
	@.venv/bin/pytest -q -x -m drill tests/lab

requirements: setup
	@.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --custom-compile-command "make requirements" requirements.in --output-file requirements.txt
