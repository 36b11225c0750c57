"""A member that computes for long can be interrupted, and answers meanwhile."""

import asyncio
import subprocess
import sys

import pytest

from secagg.system.threads import compute_aside

ENDLESS = """
import asyncio, signal
import torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts tests in the background has it ignored
from secagg.system.threads import compute_aside

def train():
    weights = torch.zeros(200, 200, requires_grad=True)
    while True:
        (weights @ weights).sum().backward()

async def main():
    asyncio.get_running_loop().call_later(0.1, signal.raise_signal, signal.SIGINT)
    await compute_aside(train)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    raise SystemExit(130)
"""


def test_an_interrupt_ends_training() -> None:
    """A process that trains without end is over at the first interrupt, with its own exit code."""
    ended = subprocess.run([sys.executable, "-c", ENDLESS], timeout=60, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")


async def test_the_loop_goes_on_meanwhile() -> None:
    """What waits for the event loop waits for no work: here the work waits for the loop."""
    loop = asyncio.get_running_loop()

    def work() -> int:
        return asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 7), loop).result(timeout=30)

    assert await compute_aside(work) == 7


async def test_an_error_of_the_work_is_the_waiter_s() -> None:
    """An exception comes out where the work is waited for."""
    with pytest.raises(ZeroDivisionError):
        await compute_aside(lambda: 1 // 0)
