#!/usr/bin/env bash
# Chromium for the browser tests, from the system's packages. Where that is not possible the browser tests say so and skip.
set -u
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >/dev/null 2>&1
  for browser in chromium-headless-shell chromium; do
    apt-get install -y -qq --no-install-recommends "$browser" fonts-dejavu-core >/dev/null 2>&1 && exit 0
  done
fi
command -v chromium chromium-browser google-chrome >/dev/null && exit 0
echo "no chromium: the browser tests will be skipped (install it with your system's packages)" >&2
