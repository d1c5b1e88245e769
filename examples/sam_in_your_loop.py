"""CSAM in a loop of your own: three changed lines, marked below.

The embedded digits, a small network, and the same loop twice: SGD, then CSAM around the same SGD. Run it:
``python examples/sam_in_your_loop.py``
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import surefoot as sf


def train(x: torch.Tensor, y: torch.Tensor, calibrated: bool, epochs: int = 40) -> nn.Module:
    """A network trained on x (n, 64) and y (n,), by SGD or by CSAM."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.BatchNorm1d(128), nn.Dropout(0.1), nn.Linear(128, 10))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    if calibrated:
        opt = sf.optim.CSAM(opt, rho=0.2, gamma=1.0)  # 1: wrap the optimizer
        criterion = opt.outer(criterion)  # 2: and the loss
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(128):

            def closure(rows: torch.Tensor = rows) -> torch.Tensor:
                opt.zero_grad()
                loss = criterion(model(x[rows]), y[rows])
                loss.backward()
                return loss

            opt.step(closure)  # 3: the step asks for gradients itself (torch's own optimizers take a closure too)
        scheduler.step()
    return model.eval()


def main() -> None:
    """Train both ways and compare them on held-out digits."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    print(f"{'':6} accuracy     nll     ece")
    for name, calibrated in (("SGD", False), ("CSAM", True)):
        p = sf.Predictions.of(train(x[:900], y[:900], calibrated), x[900:], y[900:])
        print(f"{name:6} {sf.metrics.accuracy(p):8.4f} {sf.metrics.nll(p):7.4f} {sf.metrics.ece(p):7.4f}")


if __name__ == "__main__":
    main()
