# SPDX-License-Identifier: Apache-2.0
"""Makes each test a phase of `energy measure --by phase -- pytest`."""

import os
import socket

import pytest


def mark(line):
    with socket.socket(socket.AF_UNIX) as phases:
        phases.connect(os.environ["ENERGY_PHASE_SOCKET"])
        phases.sendall(line.encode() + b"\n")
        assert phases.recv(256) == b"ok\n"


@pytest.fixture(autouse=True)
def energy_phase(request):
    if "ENERGY_PHASE_SOCKET" not in os.environ:  # not measured
        yield
        return
    mark(f"begin {request.node.name}")
    yield
    mark("end")
