#!/usr/bin/env bash
# Runs the attacks on the built collector. They need root and a C compiler; a test that lacks something is skipped with the reason.
#
#   RUN=TestAttackStopped   runs only the tests that match
set -euo pipefail
cd "$(dirname "$0")/../../.."
mkdir -p build/integration
. receiver/test/integration/tests.sh
tests build/integration/attacks.log -run "${RUN:-^TestAttack}"
