#!/usr/bin/env bash
# Runs everything: formatting, lints, all tests.
set -euo pipefail
cd "$(dirname "$0")"
cargo fmt --all --check
cargo clippy --workspace --all-targets -- -D warnings
timeout 1500 cargo test --workspace
RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps
