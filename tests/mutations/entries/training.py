"""Faults in what members train, and in what they send of it."""

from tests.mutations.planting import PlantedFault

ENTRIES = (
    PlantedFault(
        "no noise in a step",
        "DP-SGD draws its noise once for all steps.",
        "secagg.models.private_training:dp_sgd",
        (
            ("        total = _noise(network.size, settings.sigma, randomness)\n", "        total = first.copy()\n"),
            (
                "    for _ in range(settings.steps):\n",
                "    first = _noise(network.size, settings.sigma, randomness)\n    for _ in range(settings.steps):\n",
            ),
        ),
        ("models/test_private_training.py::test_every_step_has_noise_of_its_own",),
    ),
)
