#!/usr/bin/env bash
# Runs the attacks on the built collector. They need root and a C compiler; what a test lacks it names.
#
#   RUN=TestAttackStopped   only the tests that match
set -euo pipefail
cd "$(dirname "$0")/../../.."
mkdir -p build/integration
. internal/test/integration/tests.sh
tests build/integration/attacks.log -run "${RUN:-^TestAttack}"
