# SPDX-License-Identifier: Apache-2.0
"""Compares the collector of `make build-gpu` with NVIDIA's library and with known loads, on a machine with an NVIDIA GPU.

usage: check.py [COLLECTOR]

It needs Python's nvidia-ml-py and nvcc, and a GPU that nothing else uses. It takes four minutes and changes no setting of the GPU.
"""
import collections, json, os, subprocess, sys, tempfile, threading, time
import pynvml

CONFIG = """
extensions: {nvml: {}}
receivers:
  energy:
    collection_interval: INTERVAL
    meters: {gpu: {extensions: [EXTENSION]}}
    series: {processes: {group_by: pid, min_energy: 0, max: 0}}
exporters: {file: {path: OUT, flush_interval: 100ms}}
service:
  extensions: [nvml]
  telemetry: {metrics: {level: none}}
  pipelines: {metrics: {receivers: [energy], exporters: [file]}}
"""


def start(extension="nvml", interval="2s"):
    config = CONFIG.replace("OUT", out).replace("INTERVAL", interval).replace("[EXTENSION]", f"[{extension}]")
    with open(f"{work}/config.yaml", "w") as f:
        f.write(config)
    return subprocess.Popen([collector, "--config", f"{work}/config.yaml"], stderr=open(f"{work}/log", "w"))


def stop(process):
    process.terminate()
    process.wait()


def cpu_time(process):
    tasks = f"/proc/{process.pid}/task"
    return sum(int(open(f"{tasks}/{t}/schedstat").read().split()[0]) for t in os.listdir(tasks)) / 1e9


def load(seconds, on=1000, off=0, blocks=0):
    args = [str(x) for x in (seconds, on, off, blocks or multiprocessors)]
    return subprocess.Popen([f"{work}/load", *args], stdout=subprocess.PIPE, text=True)


def run(*loads):
    """Returns the kernels of each process, by its PID."""
    return dict(tuple(map(int, p.communicate()[0].split())) for p in loads)


class Counter(threading.Thread):
    """Reads the energy counter in mJ, and the power of the moment in mW."""

    def __init__(self):
        super().__init__(daemon=True)
        self.readings, self.ended = [], False

    def run(self):
        while not self.ended:
            energy = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
            power = pynvml.nvmlDeviceGetFieldValues(gpu, [pynvml.NVML_FI_DEV_POWER_INSTANT])[0].value.uiVal
            self.readings.append((time.time(), energy, power))
            time.sleep(0.04)

    def joules(self, begin, end):
        of = [r for r in self.readings if begin <= r[0] <= end]
        integral = sum((b[0] - a[0]) * (a[2] + b[2]) / 2000 for a, b in zip(of, of[1:]))
        return (of[-1][1] - of[0][1]) / 1000, integral


def points():
    """Returns the last value of each series: GPU's joules, by metric, state and PID; and when they began and ended."""
    last, times = {}, []
    for line in open(out):
        for resource in json.loads(line)["resourceMetrics"]:
            of = attributes(resource["resource"])
            for m in (m for s in resource["scopeMetrics"] for m in s["metrics"] if "sum" in m):
                for p in m["sum"]["dataPoints"]:
                    a = attributes(p)
                    if a.get("energy.zone") == "gpu":
                        last[m["name"], a.get("energy.state", ""), int(of.get("process.pid", 0))] = p["asDouble"]
                        if m["name"] == "hw.energy":
                            times.append((int(p["timeUnixNano"]) / 1e9, p["asDouble"]))
    return last, times


def attributes(of):
    return {a["key"]: next(iter(a["value"].values())) for a in of.get("attributes", [])}


def check(name, *batches):
    """Runs batches of loads one after the other beside a collector, and prints what it attributed to whom."""
    if os.path.exists(out):
        os.remove(out)
    receiver = start()
    time.sleep(5)
    kernels = {}
    for batch in batches:
        kernels |= run(*(load(*args) for args in batch))
        time.sleep(1 if len(batches) > 1 else 0)
    time.sleep(4)
    stop(receiver)
    last, times = points()
    begin, end = times[0], times[-1]
    counted, integral = counter.joules(begin[0], end[0])
    active, idle = last["system.energy", "active", 0], last["system.energy", "idle", 0]
    nobody = last.get(("system.unattributed.energy", "", 0), 0)
    of = {pid: joules for (m, _, pid), joules in last.items() if m == "process.energy"}
    print(f"\n{name}: counter {counted:.0f} J, integral of power {integral:.0f} J, hw.energy {end[1] - begin[1]:.0f} J")
    print(f"  active {active:.0f} J, idle {idle:.0f} J, unattributed {nobody / active:.1%}, "
          f"active - processes - unattributed = {active - sum(of.values()) - nobody:.6f} J")
    for pid, n in kernels.items():
        print(f"  {n / sum(kernels.values()):6.1%} of the kernels, {of.get(pid, 0) / sum(of.values()):6.1%} of the energy")


def cost(name, *args):
    for extension in ("nvml", ""):
        used = load(*args) if args else None
        receiver = start(extension, "10s")
        time.sleep(5)
        before = cpu_time(receiver)
        time.sleep(20)
        print(f"cost, {name}, {'with' if extension else 'without'} the GPU: {(cpu_time(receiver) - before) / 20:.2%} of a core")
        stop(receiver)
        if used:
            used.terminate()
            used.communicate()


collector = sys.argv[1] if len(sys.argv) > 1 else "build/gpu/otelcol-energy"
work = tempfile.mkdtemp()
out = f"{work}/out.json"
source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "load.cu")
subprocess.run(["nvcc", "-arch=native", "-O2", "-o", f"{work}/load", source], check=True)
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
multiprocessors = pynvml.nvmlDeviceGetNumGpuCores(gpu) // 128
print(pynvml.nvmlDeviceGetName(gpu), "driver", pynvml.nvmlSystemGetDriverVersion(), multiprocessors, "multiprocessors")
cost("idle")
cost("busy", 60)
counter = Counter()
counter.start()
check("one process", [(15,)])
check("two that do the same", [(60,), (60,)])
check("one all the time, one 97 of 186 ms, one 23 of 174 ms", [(40,), (40, 97, 89), (40, 23, 151)])
check("jobs of 1.2 s", *[[(1.2,)]] * 8)
counter.ended = True
