# Shared by the scripts here; sets $top to the repository's root.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

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

# Linux, a C compiler (zstd is C) and Rust; a rustup fetches the right version by itself.
need_rust() {
  [ "$(uname -s)" = Linux ] || missing "Linux, this is $(uname -s)" "a Linux host or virtual machine; io_uring is Linux's own"
  [ -x "$HOME/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH"
  command -v cc >/dev/null || install_debian gcc libc6-dev
  local wanted found
  wanted=$(rust_version)
  command -v cargo >/dev/null ||
    missing "cargo, Rust $wanted or newer" "rustup: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
  # Asked in the repository, where rust-toolchain.toml counts.
  found=$(cd "$top" && cargo --version | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
  [ -n "$found" ] || missing "a cargo that runs (see its message above)" "rustup toolchain install $wanted"
  [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -1)" = "$wanted" ] ||
    missing "Rust $wanted or newer, $(command -v cargo) is $found" "rustup (https://rustup.rs), or a newer package"
}

rust_version() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml" | head -1; }

# Becomes a program of tests/, with what the clients' tests need installed: PROGRAM [ARG ...].
# Nothing is left beside its source.
client_program() {
  local program=$1
  shift
  "$top/scripts/client-deps"
  PYTHONDONTWRITEBYTECODE=1 exec "$("$top/scripts/client-deps" --python)" "$top/tests/$program" "$@"
}

# What `cargo build --release` has made.
release_binary() { echo "$(target_dir)/release/uringlog"; }

target_dir() {
  cargo metadata --format-version 1 --no-deps --manifest-path "$top/Cargo.toml" |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}
