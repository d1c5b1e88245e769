"""A `transformers.Trainer` with `SurefootCallback`, whole and resumed; run by torchrun in `test_huggingface_ranks.py`.

``python -m torch.distributed.run --nproc-per-node 2 -m tests.integrations.ranks_huggingface FOLDER``
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from surefoot.integrations.huggingface import SurefootCallback
from tests.integrations.test_huggingface import TEST, TRAIN, fit, steps

SAVING = {"save_strategy": "steps", "save_steps": 3, "num_train_epochs": 2}


def main(folder):
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    ranks = {"ddp_backend": "gloo"} if "RANK" in os.environ else {}
    told = []

    class Told:
        def log(self, reading):
            told.append(reading["step"])

        def close(self):
            pass

    def callback(name):
        return SurefootCallback(TRAIN, TEST, every=2, out=folder / name / str(rank), loggers=[Told()])

    whole = callback("whole")
    model = fit(folder / "trainer", whole, **SAVING, **ranks)
    plain = fit(folder / "plain", **SAVING, **ranks)
    parts = callback("whole")
    before = [path.read_bytes() for path in sorted((folder / "whole").rglob("*.jsonl"))]
    resumed = fit(folder / "trainer", parts, resume=str(folder / "trainer" / "checkpoint-3"), **SAVING, **ranks)
    found = {
        "readings": [{k: v for k, v in each.items() if isinstance(v, float)} for each in whole.tracker.readings],
        "steps": [steps(whole), steps(parts)],
        "told": told,
        "untouched": all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True)),
        "resumed": all(torch.equal(a, b) for a, b in zip(model.parameters(), resumed.parameters(), strict=True)),
        "journal": before == [path.read_bytes() for path in sorted((folder / "whole").rglob("*.jsonl"))],
    }
    (folder / f"{rank}.json").write_text(json.dumps(found))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
