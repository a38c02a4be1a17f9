#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up joules from files that the collector's file exporter has written (OTLP as JSON, a request a line).

    joules.py container.energy container.id --zone package --hours 1 < energy.json

prints the joules of each container in the last hour. Without an attribute it prints one sum. Rotated files are read in
the order of time: cat energy-*.json energy.json | joules.py ...
"""

import argparse
import json
import sys
import time

# The identity of a series, in addition to the attributes of its data points. Other attributes may be added to a series
# later, for example labels.
IDS = ("host.name", "process.pid", "process.creation.time", "container.id", "k8s.pod.uid", "vm.id", "slurm.job.id",
       "slurm.step.id", "systemd.unit.name")
NO_RECORDED_VALUE = 1


def attributes(list_):
    return {a["key"]: next(iter(a["value"].values()), "") for a in list_}


def points(lines, metric, zone):
    """Yields the attributes and the data points of a counter."""
    for line in lines:
        if metric not in line:
            continue
        for r in json.loads(line)["resourceMetrics"]:
            resource = attributes(r["resource"].get("attributes", ()))
            for scope in r["scopeMetrics"]:
                for m in scope["metrics"]:
                    if m["name"] != metric:
                        continue
                    for p in m["sum"]["dataPoints"]:
                        own = attributes(p.get("attributes", ()))
                        if own.get("energy.zone", zone) == zone and not p.get("flags", 0) & NO_RECORDED_VALUE:
                            yield resource, own, p


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metric", help="container.energy, process.energy, ...")
    parser.add_argument("attribute", nargs="?", help="a sum for each of its values")
    parser.add_argument("--zone", default="package")
    parser.add_argument("--hours", type=float, default=float("inf"), help="how many hours before --until; all by default")
    parser.add_argument("--until", type=float, default=time.time(), help="seconds since 1970; now by default")
    options = parser.parse_args()
    until = options.until * 1e9
    since = until - options.hours * 3600e9

    before, last, keys = {}, {}, {}
    for resource, own, p in points(sys.stdin, options.metric, options.zone):
        at = int(p["timeUnixNano"])
        if at > until:
            continue
        # A total begins at 0 at its start time, which is another one after a restart without storage.
        ids = tuple(resource.get(i) for i in IDS)
        # Only its names identify the series of a program, or an overflow series. Those of a node have its name.
        node = options.metric.startswith(("system.", "hw."))
        program = options.metric.startswith("process.") and not resource.get("process.pid")
        if program or not node and not any(ids[1:]):
            ids = json.dumps(resource, sort_keys=True)
        series = (p["startTimeUnixNano"], ids, *sorted(own.items()))
        value = p.get("asDouble", 0)
        if at <= since:
            before[series] = value
        last[series] = value
        keys[series] = {**resource, **own}.get(options.attribute, "") if options.attribute else ""

    sums = {}
    for series, value in last.items():
        sums[keys[series]] = sums.get(keys[series], 0) + value - before.get(series, 0)
    for key, joules in sorted(sums.items(), key=lambda item: -item[1]):
        print(f"{joules:.6f}\t{key}")


if __name__ == "__main__":
    main()
