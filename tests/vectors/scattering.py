"""Writes tests/vectors/v1/scattering.json: `python -m tests.vectors.scattering`.

Nothing of secagg is imported. The transform is computed in space from its definition: wavelets summed over 5 × 5
periods, circular convolutions as products with whole matrices, a two-dimensional Gaussian, means over slices. The
package uses Fourier transforms and separable matrices. Floating point decides the last bit of an entry, so tests hold
either to one grid unit of these integers.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

PATH = Path(__file__).parent / "v1" / "scattering.json"
SOURCE = (
    "Bruna & Mallat 2013, equations 5 to 9; filters and borders as in Kymatio 0.3 (with pi for its 3.1415), "
    "no decimation; means of 3 x 3 places, each order centred and of length 1; then the grid's rule centred-unit"
)
GENERATOR = "python -m tests.vectors.scattering (numpy: convolutions as matrix products in space)"
LEVELS = 1 << 16


def pictures() -> dict[str, np.ndarray]:
    """Grey pictures that anybody can recompute: noise, drawn shapes, one faint pixel, nothing at all."""
    found = {}
    for height, width in ((8, 8), (9, 13), (28, 28)):
        stream = hashlib.shake_256(f"secagg scattering v1: {height} x {width}".encode()).digest(height * width)
        found[f"noise {height}x{width}"] = np.frombuffer(stream, dtype=np.uint8).reshape(height, width)
    rows, columns = np.mgrid[0:16, 0:16]
    found["bar 16x16"] = np.where(abs(2 * rows - columns - 6) < 4, 255, 0).astype(np.uint8)
    rows, columns = np.mgrid[0:28, 0:28]
    found["ring 28x28"] = np.where(abs(np.hypot(rows - 12, columns - 15) - 7) < 1.5, 200, 10).astype(np.uint8)
    found["one faint pixel 28x28"] = np.where((rows == 9) & (columns == 20), 1, 0).astype(np.uint8)
    found["blank 28x28"] = np.full((28, 28), 77, dtype=np.uint8)
    return found


def gabor(shape: tuple[int, int], sigma: float, theta: float, xi: float, slant: float) -> np.ndarray:
    """A Gaussian with a wave of frequency xi in direction theta, on a torus."""
    turned = np.array([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
    curvature = turned @ np.diag([1.0, slant**2]) @ turned.T / (2 * sigma**2)
    total = np.zeros(shape, dtype=complex)
    for down in range(-2, 3):
        for right in range(-2, 3):
            rows, columns = np.mgrid[: shape[0], : shape[1]]
            rows, columns = rows + down * shape[0], columns + right * shape[1]
            bell = curvature[0, 0] * rows**2 + 2 * curvature[0, 1] * rows * columns + curvature[1, 1] * columns**2
            total += np.exp(-bell + 1j * xi * (rows * math.cos(theta) + columns * math.sin(theta)))
    return total * slant / (2 * math.pi * sigma**2)


def convolution(kernel: np.ndarray) -> np.ndarray:
    """The matrix that convolves a flat picture on the torus with a kernel."""
    height, width = kernel.shape
    rows, columns = (each.ravel() for each in np.mgrid[:height, :width])
    return kernel[(rows[:, None] - rows) % height, (columns[:, None] - columns) % width]


def reflected(side: int) -> list[int]:
    """Where the padded positions of a side come from."""
    padded = ((side + 4) // 4 + 1) * 4
    before = (padded - side) // 2
    inside = [abs(place - before) for place in range(padded)]
    return [place if place < side else 2 * (side - 1) - place for place in inside]


def features(picture: np.ndarray) -> np.ndarray:
    """The 729 features of a picture of bytes."""
    taken = [reflected(side) for side in picture.shape]
    padded = picture[np.ix_(*taken)] / 255.0
    waves: list[list[np.ndarray]] = []
    for scale in range(2):
        waves.append([])
        for number in range(8):
            theta, sigma = (3 - number) * math.pi / 8, 0.8 * 2**scale
            wave = gabor(padded.shape, sigma, theta, 0.75 * math.pi / 2**scale, 0.5)
            bell = gabor(padded.shape, sigma, theta, 0.0, 0.5)
            waves[-1].append(convolution(wave - bell * (wave.sum() / bell.sum())))
    fine, coarse = ([abs(matrix @ padded.ravel()) for matrix in group] for group in waves)
    second = [abs(matrix @ modulus) for modulus in fine for matrix in waves[1]]
    smooth = convolution(gabor(padded.shape, 1.6, 0.0, 0.0, 1.0).real)
    return np.concatenate(
        [
            unit(means([smooth @ each for each in order], padded.shape, picture.shape))
            for order in ([padded.ravel()], fine + coarse, second)
        ]
    )


def means(maps: list[np.ndarray], padded: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """The means of flat padded maps over 3 × 3 places of the picture."""
    starts = [(size - side) // 2 for size, side in zip(padded, shape, strict=True)]
    found = []
    for each in maps:
        inside = each.reshape(padded)[starts[0] : starts[0] + shape[0], starts[1] : starts[1] + shape[1]]
        for row in range(3):
            for column in range(3):
                places = (
                    slice(math.floor(place * side / 3), math.ceil((place + 1) * side / 3))
                    for place, side in ((row, shape[0]), (column, shape[1]))
                )
                found.append(inside[tuple(places)].mean())
    return np.array(found)


def unit(values: np.ndarray) -> np.ndarray:
    """Values minus their mean, of length 1; zeros where there is nothing but rounding errors."""
    centred = values - values.mean()
    length = math.sqrt(float(centred @ centred))
    return np.asarray(centred * 0.0 if length < 1e-9 else centred / length)


def integers(vector: np.ndarray) -> list[int]:
    """The vector on the plan's grid, by the rule centred-unit."""
    direction = unit(vector)
    return [round(float(value)) for value in direction * (LEVELS - math.sqrt(len(vector)) / 2)]


def cases() -> list[dict[str, Any]]:
    """A case for each picture: its bytes, and its integers as text."""
    return [
        {
            "name": name,
            "shape": list(picture.shape),
            "pixels": picture.tobytes().hex(),
            "integers": " ".join(map(str, integers(features(picture)))),
        }
        for name, picture in pictures().items()
    ]


def main() -> None:
    """Write the file."""
    content = {"source": SOURCE, "generator": GENERATOR, "levels": LEVELS, "cases": cases()}
    PATH.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
