#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a model archive of Kepler Model Server to the JSON file that the receiver reads.

    unzip GradientBoostingRegressorTrainer_1.zip -d archive
    export.py archive > GradientBoostingRegressorTrainer_1.json

The archive is the .zip file of a trainer in kepler-model-db, or a model directory of Model Server. Requires joblib and
scikit-learn. Unpickling runs code: convert only archives of a source that you trust.

A polynomial of CPU time becomes a file of the command energy model: a curve over utilization. It requires machine_spec
in metadata.json.
"""
import base64
import json
import os
import sys
import time

import joblib
import numpy


def scaling(scaler, i):
    """x = (feature - mean) / scale, for the scalers that Model Server has had."""
    if hasattr(scaler, "data_min_"):  # MinMaxScaler of v0.6
        return {"scale": 1 / scaler.scale_[i], "mean": scaler.data_min_[i]}
    if getattr(scaler, "mean_", None) is not None:  # StandardScaler
        return {"scale": scaler.scale_[i], "mean": scaler.mean_[i]}
    return {"scale": scaler.scale_[i]}  # MaxAbsScaler


def xgboost(base, features, trees):
    model = {
        "learner": {
            "gradient_booster": {"name": "gbtree", "model": {"trees": trees}},
            "learner_model_param": {"base_score": str(base), "num_class": "0", "num_feature": str(features)},
            "objective": {"name": "reg:squarederror"},
        }
    }
    return base64.b64encode(json.dumps(model, separators=(",", ":")).encode()).decode()


def slim(text):
    """Leaves out the columns of XGBoost's JSON that no prediction needs."""
    model = json.loads(text)
    columns = ("left_children", "right_children", "split_indices", "split_conditions", "split_type")
    booster = model["learner"]["gradient_booster"]
    booster["model"] = {"trees": [{c: t[c] for c in columns if c in t} for t in booster["model"]["trees"]]}
    return base64.b64encode(json.dumps(model, separators=(",", ":")).encode()).decode()


def boosted(model):
    """GradientBoostingRegressor as trees of XGBoost, which go left below a condition rather than up to it."""
    trees = []
    for tree in (e.tree_ for e in model.estimators_[:, 0]):
        at = tree.threshold.astype(numpy.float32)
        at = numpy.where(at > tree.threshold, numpy.nextafter(at, numpy.float32(-numpy.inf)), at)
        below = numpy.nextafter(at, numpy.float32(numpy.inf))
        leaf = tree.children_left < 0
        conditions = numpy.where(leaf, model.learning_rate * tree.value[:, 0, 0], below)
        trees.append({
            "left_children": tree.children_left.tolist(),
            "right_children": tree.children_right.tolist(),
            "split_indices": numpy.where(leaf, 0, tree.feature).tolist(),
            "split_conditions": [float(str(numpy.float32(c))) for c in conditions],
        })
    return xgboost(float(numpy.ravel(model.init_.constant_)[0]), model.n_features_in_, trees)


def weights(path, component, features):
    scaler = joblib.load(os.path.join(path, "scaler.pkl"))
    # Kepler 0.6 has this feature in milliseconds, too.
    names = ["bpf_cpu_time_ms" if f == "bpf_cpu_time_us" else f for f in features]
    numerical = {f: scaling(scaler, i) for i, f in enumerate(names)}
    all_weights = {"Categorical_Variables": {}, "Numerical_Variables": numerical}
    file = os.path.join(path, component["model_file"])
    if file.endswith(".json"):
        with open(file) as f:
            return all_weights | {"XGboost_Weights": slim(f.read())}
    model = joblib.load(file)
    if hasattr(model, "estimators_"):
        return all_weights | {"XGboost_Weights": boosted(model)}
    if not hasattr(model, "coef_") or hasattr(model, "support_"):
        sys.exit(f"{type(model).__name__} has no weights: use a model of another trainer")
    all_weights["Bias_Weight"] = float(numpy.ravel(model.intercept_)[0])
    for name, weight in zip(names, model.coef_):
        numerical[name]["weight"] = weight
    return all_weights


def curve(path, component, features, threads):
    """The watts of a polynomial of CPU time at 101 utilizations."""
    scaler, polynomial, model = (
        joblib.load(os.path.join(path, f)) for f in ("scaler.pkl", "poly_scaler.pkl", component["model_file"])
    )
    used = {f for w, row in zip(model.coef_, polynomial.powers_) for f, p in zip(features, row) if w and p}
    if not used <= {"bpf_cpu_time_ms", "bpf_cpu_time_us"}:
        sys.exit(f"it is a polynomial of {', '.join(sorted(used))}, not of CPU time: use a model of another trainer")
    utilization = [i / 100 for i in range(101)]
    x = numpy.array([[1000 * threads * u if f in used else 0 for f in features] for u in utilization])
    watts = model.predict(polynomial.transform(scaler.transform(x)))
    return [[u, max(round(float(w), 3), 0)] for u, w in zip(utilization, watts)]


def curves(path, metadata, components):
    """The file of energy model that has the curves of all components."""
    spec = metadata.get("machine_spec")
    if not spec or metadata.get("output_type") == "DynPower":
        sys.exit("a polynomial must be of AbsPower, and metadata.json must have machine_spec")
    machine = {"cpu": spec["processor"], "threads": int(spec["cores"]), "sockets": int(spec.get("chips", 0))}
    machine["memory"] = int(spec.get("memory", 0)) << 30
    zones = {}
    for name, component in components.items():
        points = curve(path, component, component["features"], machine["threads"])
        if any(watts for _, watts in points):  # else the machine of the training did not have the component
            error = max(metadata.get(f"{name}_mape", 0), 0) / 100
            zones[name] = {"points": points, "error": error, "seconds": 0, "utilization": [0, 1]}
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"version": 1, "created": created, "machine": machine, "zones": zones}


def main(path):
    with open(os.path.join(path, "metadata.json")) as f:
        metadata = json.load(f)
    with open(os.path.join(path, metadata["model_file"])) as f:
        components = json.load(f)
    if any("poly_scaler.pkl" in c.get("fe_files", ()) for c in components.values()):
        print(json.dumps(curves(path, metadata, components)))
        return
    kept = ("model_name", "output_type", "machine_spec")
    model = {k: v for k, v in metadata.items() if k in kept or k.endswith("_mape")}
    for name, component in components.items():
        model[name] = {"All_Weights": weights(path, component, component["features"])}
    print(json.dumps(model))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
