#!/bin/bash
# User-data of a RabbitMQ node: says which node this instance is, fetches the node bundle, checks it and runs it.
# Nothing here is secret. The story goes on under `journalctl -t rabbitmq-node`.
set -euo pipefail
umask 022

readonly ETC=/etc/rabbitmq-node
readonly OPT=/opt/rabbitmq-node
readonly ATTEMPTS=10

log_info() { logger --stderr --tag rabbitmq-node --priority user.info -- "user-data: $*"; }
log_error() { logger --stderr --tag rabbitmq-node --priority user.err -- "user-data: $*"; }

write_instance() {
  install -d -m 0700 "$ETC"
  cat > "$ETC/instance.json" << 'END_OF_INSTANCE'
@@INSTANCE_JSON@@
END_OF_INSTANCE
  chmod 0600 "$ETC/instance.json"
}

# Runs a command up to ATTEMPTS times. Exit code 3 means that another attempt is pointless.
retry() {
  local attempt code
  for attempt in $(seq "$ATTEMPTS"); do
    code=0
    "$@" || code=$?
    [ "$code" -eq 0 ] && return 0
    log_error "attempt $attempt of $ATTEMPTS failed: $1"
    [ "$code" -eq 3 ] && return 3
    [ "$attempt" -lt "$ATTEMPTS" ] && sleep $((attempt * 2 + RANDOM % 3))
  done
  return 1
}

# The AWS library of the distribution's own Python. Amazon Linux 2023 does not bring it along.
ensure_boto3() {
  python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("boto3") is None)' || dnf -y -q install python3-boto3
}

# Fetches the bundle and checks it. Exit code 3: the checksum is wrong.
fetch_bundle() {
  python3 - "$ETC/instance.json" "$OPT/bundle.tar.gz" << 'END_OF_PYTHON'
import hashlib, json, sys
import boto3
from botocore.config import Config

instance = json.load(open(sys.argv[1]))
bundle = instance["bundle"]
config = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3})
boto3.client("s3", region_name=instance["region"], config=config).download_file(bundle["bucket"], bundle["key"], sys.argv[2])
found = hashlib.sha256(open(sys.argv[2], "rb").read()).hexdigest()
if found != bundle["sha256"]:
    print(f"bundle {bundle['key']}: SHA-256 is {found}, expected {bundle['sha256']}", file=sys.stderr)
    sys.exit(3)
END_OF_PYTHON
}

unpack_bundle() {
  local digest target
  digest=$(sha256sum "$OPT/bundle.tar.gz")
  target="$OPT/${digest:0:16}"
  install -d -m 0755 "$target"
  tar -xzf "$OPT/bundle.tar.gz" -C "$target" --no-same-owner
  ln -sfn "$target" "$OPT/current"
  rm "$OPT/bundle.tar.gz"
  log_info "bundle unpacked to $target"
}

# The reason first, as the id of a signal of its own: signals have no field for one.
signal_failure() {
  python3 - "$ETC/instance.json" "$1" << 'END_OF_PYTHON'
import json, sys, urllib.request
import boto3

instance = json.load(open(sys.argv[1]))
url, ttl = "http://169.254.169.254/latest/", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
token = urllib.request.urlopen(urllib.request.Request(url + "api/token", method="PUT", headers=ttl), timeout=5).read().decode()
request = urllib.request.Request(url + "meta-data/instance-id", headers={"X-aws-ec2-metadata-token": token})
me = urllib.request.urlopen(request, timeout=5).read().decode()
client = boto3.client("cloudformation", region_name=instance["region"])
for unique_id in (f"{me} user-data: {sys.argv[2]}"[:64], me):
    client.signal_resource(
        StackName=instance["stack_name"],
        LogicalResourceId=instance["asg_logical_id"],
        UniqueId=unique_id,
        Status="FAILURE",
    )
END_OF_PYTHON
}

fail() {
  log_error "$1. To do: $2"
  signal_failure "$1" || log_error "the failure could not be signalled either"
  exit 1
}

main() {
  write_instance
  install -d -m 0755 "$OPT"
  retry ensure_boto3 || fail "python3-boto3 cannot be installed" "check the subnet's way to the package repository"
  retry fetch_bundle || fail "no valid node bundle" "check the role's access to the bundle's bucket, and the VPC's S3 endpoint"
  unpack_bundle
  "$OPT/current/boot.sh" || fail "boot.sh failed" "read on in /var/log/cloud-init-output.log; the bundle has to be mended"
}

main "$@"
