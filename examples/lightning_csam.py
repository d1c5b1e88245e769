"""Lightning: CSAM under ``Trainer.fit`` in bfloat16, watched by a callback, with calibration metrics of validation.

Needs the extra: ``pip install 'surefoot[lightning]'``. Run it: ``python examples/lightning_csam.py``
"""

import logging

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection

import surefoot as sf
from surefoot.integrations.lightning import SurefootCallback
from surefoot.integrations.torchmetrics import ECE, NLL, Accuracy

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Digits(LightningModule):
    """A small network on the embedded digits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Dropout(0.1), nn.Linear(64, 10))
        self.metrics = MetricCollection({"accuracy": Accuracy(), "ece": ECE(), "nll": NLL()})

    def forward(self, x: Tensor) -> Tensor:
        """Logits (b, 10) of images (b, 64)."""
        return self.net(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """CSAM around SGD; its criterion knows which of the two passes it is called in."""
        opt = sf.optim.CSAM(torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9), rho=0.1)
        self.criterion = opt.outer(nn.CrossEntropyLoss())
        return opt

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """Run twice by each step of CSAM."""
        x, y = batch
        return self.criterion(self(x), y)

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        """Exact over batches and ranks."""
        self.metrics.update(self(batch[0]), batch[1])
        self.log_dict(self.metrics)


def main() -> None:
    """Train, and print what the callback read."""
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    train, test = TensorDataset(x[:900], y[:900]), TensorDataset(x[900:], y[900:])

    watch = SurefootCallback(train=train.tensors, test=test.tensors, every=30)
    trainer = Trainer(
        max_epochs=9,
        precision="bf16-mixed",
        accelerator="cpu",
        callbacks=[watch],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Digits(), DataLoader(train, 90, shuffle=True), DataLoader(test, 128))

    print(" step  test acc  test ece  sharpness  |epsilon|")
    for r in watch.tracker.readings:
        print(
            f"{r['step']:5d} {r['test.accuracy']:9.3f} {r['test.ece']:9.3f} {r['sharpness']:10.2f} "
            f"{r.get('rule.epsilon', 0):10.3f}"
        )
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
