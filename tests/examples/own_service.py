"""A real federation inside one's own asyncio program: keys, a plan, a server and three members over mutual TLS."""

# %% Keys, roster and plan, as every member makes and checks them (here all on one machine)
import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import secagg
from secagg.federation import Result

MEMBERS = ("north", "south", "west")


def command(*words: str) -> None:
    """Run `secagg` as a person would."""
    subprocess.run([sys.executable, "-m", "secagg", *words, "--quiet"], check=True, stdout=subprocess.DEVNULL)


command("pki", "init", "--ca", "authority", "--consortium", "example")
for name in ("coordinator", *MEMBERS):
    command("pki", "request", name, "--tls", name, "--role", "client" if name in MEMBERS else "server")
command("pki", "issue", *(f"{name}/request.json" for name in ("coordinator", *MEMBERS)), "--ca", "authority")
for name in ("coordinator", *MEMBERS):
    shutil.copytree(Path("authority/issued") / name, name, dirs_exist_ok=True)
shape = ["--shape", "3", "--classes", "no,yes", "--radius", "10", "--max-records", "100"]
command("plan", "new", "--purpose", "an example", "--roster", "coordinator/roster.json", "--out", "plan.json", *shape)

# %% Each member's records and policy
records = {}
for number, name in enumerate(MEMBERS):
    labels = np.arange(40) % 2
    features = np.random.default_rng(number).normal(size=(40, 3)) + labels[:, None]
    records[name] = (features, labels)  # a file would do as well: data=f"{name}.npz"
    command("plan", "policy", "--plan", "plan.json", "--data-name", name, "--out", f"{name}/policy.toml")


# %% The service: a server beside whatever else the program does, and three members that take part
async def federate() -> Result:
    """Run the plan; return what came of it."""
    async with secagg.Server("plan.json", state="coordinator/state", tls="coordinator") as server:
        clients = [
            secagg.Client(
                "plan.json",
                server=server.address,
                data=records[name],
                policy=f"{name}/policy.toml",
                state=f"{name}/state",
                tls=name,
            )
            for name in MEMBERS
        ]
        result, *_ = await asyncio.gather(server.run(), *(client.run() for client in clients))
    return result


result = asyncio.run(federate())
print(f"{', '.join(result.members)}: the sum {result.aggregate_sha256[:16]}…, the head {result.head}")

# %% The head, and the card beside it that says whose word it is
print((result.head.parent / "model_card.md").read_text()[:400])
