"""From a hospital's own table to calibrated probabilities of new patients: a schema, a run, a prediction."""

# %% A table as a hospital exports it, and a public schema that says what its columns may hold
from pathlib import Path

import numpy as np

import secagg
from secagg.agreement.schema import load_schema

draw = np.random.default_rng(0)
ill = np.arange(400) % 2
age = (45 + 15 * ill + draw.normal(0, 12, 400)).clip(18, 99).round()
pressure = (125 + 15 * ill + draw.normal(0, 15, 400)).clip(80, 220).round()
rows = [f"{a:.0f},{p:.0f},{i}" for a, p, i in zip(age, pressure, ill, strict=True)]
Path("old.csv").write_text("\n".join(["age,pressure,ill", *rows[:300]]) + "\n")
Path("own.csv").write_text("\n".join(["age,pressure,ill", *rows[300:350]]) + "\n")
Path("new.csv").write_text("\n".join(["age,pressure", *(row.rpartition(",")[0] for row in rows[350:])]) + "\n")
Path("schema.toml").write_text("""
label = "ill"
label_values = { "0" = "healthy", "1" = "ill" }
classes = ["healthy", "ill"]
positive = "ill"
[[columns]]
name = "age"
kind = "numeric"
low = 0
high = 120
[[columns]]
name = "pressure"
kind = "numeric"
low = 40
high = 300
""")

# %% One secure sum over five hospitals; on the command line `secagg simulate --save`, in earnest `secagg client`
data = secagg.open_dataset("old.csv", schema=load_schema("schema.toml"))
run = secagg.simulate(data, clients=5)
print(run.summary())
head = run.save("hospital-head") / "head.safetensors"

# %% Probabilities that fit this hospital's own patients, for patients that nobody has labelled
predictor = secagg.Predictor.open(head)
calibration = predictor.calibrate("own.csv")
found = predictor.predict("new.csv", calibration)
print(f"temperature {calibration.temperature:.2f}: loss {calibration.before:.3f}, then {calibration.after:.3f}")
for row in found.rows()[:3]:
    print(row["row"], row["class"], {name: round(chance, 3) for name, chance in row["probabilities"].items()})

# %% How good is it here? Every measure with its interval
measures = predictor.predict("own.csv", calibration).metrics
for name, of, measure in measures.rows():
    if not of:
        print(f"{measures.called(name):24} {measure.to_text()}")
