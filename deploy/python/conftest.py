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
    name = request.node.name.encode()[:100].decode(errors="ignore")  # a phase's name has at most 100 bytes
    mark(f"begin {name}")
    yield
    mark("end")
