"""Small networks exported for tests."""

import pytest


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """A function that exports a small network for some input and returns the file."""
    import torch

    class Network(torch.nn.Module):
        """Convolution, ReLU, average pool."""

        def __init__(self, channels, features):
            super().__init__()
            self.convolution = torch.nn.Conv2d(channels, features, 3)

        def forward(self, images):
            """(n, channels, h, w) → (n, features)."""
            return torch.relu(self.convolution(images)).mean(dim=(2, 3))

    def export(name="net.pt2", channels=3, batch=1, dynamic=False, size=8, features=6):
        torch.manual_seed(0)
        path = tmp_path_factory.mktemp("programs") / name
        example = (torch.rand(batch, channels, size, size),)
        shapes = ({0: torch.export.Dim("batch", min=1)},) if dynamic else None
        network = Network(channels, features).eval()
        torch.export.save(torch.export.export(network, example, dynamic_shapes=shapes), path)
        return path

    return export
