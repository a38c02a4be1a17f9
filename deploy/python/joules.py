# SPDX-License-Identifier: Apache-2.0
"""Measures a command from Python: joules("make", "-j8"). Requires `energy` in PATH."""

import json
import subprocess


def joules(*command):
    """Runs a command and returns its energy in joules, None if nothing measures or models energy."""
    measure = ["energy", "measure", "--json", "--quiet", "-o", "-", "--", *command]
    run = subprocess.run(measure, stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)["joules"]
