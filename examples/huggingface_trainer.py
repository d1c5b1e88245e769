"""Hugging Face: a tiny BERT made on the spot, fine-tuned by ``transformers.Trainer`` and watched by a callback.

Nothing is downloaded. Needs the extra: ``pip install 'surefoot[transformers]'``. Run it:
``python examples/huggingface_trainer.py``
"""

import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from surefoot.integrations.huggingface import SurefootCallback


def sentences(count: int, seed: int) -> dict[str, Tensor]:
    """Made-up texts of up to 16 tokens out of 30; the class is the kind of token that comes most often."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 30, (count, 16), generator=random)
    mask = (torch.arange(16) < torch.randint(8, 17, (count, 1), generator=random)).long()
    ids *= mask
    counts = torch.stack([((ids % 3 == kind) & (mask == 1)).sum(1) for kind in range(3)], dim=1)
    return {"input_ids": ids, "attention_mask": mask, "labels": counts.argmax(1)}


class Rows(Dataset[dict[str, Tensor]]):
    """Columns as rows."""

    def __init__(self, columns: dict[str, Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["labels"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


def main() -> None:
    """Train, and print what the callback read."""
    torch.manual_seed(0)
    train, test = sentences(256, seed=0), sentences(256, seed=1)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=30, max_position_embeddings=16, num_labels=3, **shape))

    watch = SurefootCallback(train, test, every=32)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=8,
            per_device_train_batch_size=16,
            learning_rate=3e-3,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            logging_strategy="no",
        )
        Trainer(model, args, train_dataset=Rows(train), callbacks=[watch]).train()

    print(" step  train acc  test acc  test ece  sharpness")
    for r in watch.tracker.readings:
        print(
            f"{r['step']:5d} {r['train.accuracy']:10.3f} {r['test.accuracy']:9.3f} {r['test.ece']:9.3f} "
            f"{r['sharpness']:10.2f}"
        )


if __name__ == "__main__":
    main()
