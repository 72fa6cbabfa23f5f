#!/bin/bash
# Entry of the node bundle: installs its systemd units and starts the boot. Run by user-data; harmless to run again.
set -euo pipefail

BUNDLE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly BUNDLE
readonly UNITS=/etc/systemd/system

log_info() { logger --tag rabbitmq-node --priority user.info -- "$*"; }

install_units() {
  install -m 0644 "$BUNDLE"/systemd/rabbitmq-node-*.service "$BUNDLE/consul/consul.service" "$UNITS/"
  install -d -m 0755 "$UNITS/rabbitmq-server.service.d"
  install -m 0644 "$BUNDLE/systemd/rabbitmq-server.conf" "$UNITS/rabbitmq-server.service.d/50-rabbitmq-node.conf"
}

# A bundle that cannot even start could not say so, either: user-data does.
prove_bundle() { PYTHONPATH="$BUNDLE" python3 -c 'import node.agent, node.boot_run'; }

# A package may have enabled the broker. Only the boot may start it, after the fence.
keep_broker_down_until_boot() {
  rm -f "$UNITS"/multi-user.target.wants/{rabbitmq-server,consul}.service
  if systemctl --quiet is-active rabbitmq-server.service && ! mountpoint --quiet /mnt/rabbitmq; then
    log_info "stopping a broker that runs without the node's directory"
    systemctl stop rabbitmq-server.service
  fi
}

main() {
  prove_bundle
  install_units
  keep_broker_down_until_boot
  systemctl daemon-reload
  systemctl --quiet enable rabbitmq-node-boot.service rabbitmq-node-agent.service
  systemctl start --no-block rabbitmq-node-boot.service rabbitmq-node-agent.service
  log_info "units of ${BUNDLE##*/} installed, boot started"
}

main "$@"
