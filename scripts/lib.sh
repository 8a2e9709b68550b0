# Shared by the scripts here; sourced with $top set to the repository's root.

# Says what is missing and how to get it, and stops.
missing() {
  echo "missing: $1" >&2
  echo "  get it by: $2" >&2
  exit 3
}

# Installs Debian packages when this can be done without asking.
install_debian() {
  local absent=()
  for package in "$@"; do
    dpkg -s "$package" >/dev/null 2>&1 || absent+=("$package")
  done
  [ ${#absent[@]} -eq 0 ] && return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    missing "packages ${absent[*]}" "apt-get install ${absent[*]} (as root)"
  fi
  apt-get update -qq || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${absent[@]}" >/dev/null ||
    missing "packages ${absent[*]}" "apt-get install ${absent[*]}"
}

# Rust and a C compiler (zstd is C).
need_rust() {
  [ -x "$HOME/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH"
  command -v cc >/dev/null || install_debian gcc libc6-dev
  command -v cargo >/dev/null ||
    missing "cargo, Rust $(rust_version) or newer" "rustup (https://rustup.rs): rustup toolchain install $(rust_version)"
}

rust_version() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml" | head -1; }

target_dir() {
  cargo metadata --format-version 1 --no-deps --manifest-path "$top/Cargo.toml" |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}
