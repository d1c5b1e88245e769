"""Make the golden files again: ``python -m tests.golden.make`` from the root of the repository.

Only to be run when a change of numbers has been reviewed and is meant; say in the commit why they changed. The specs in
``specs.json`` and the folder ``old`` stay in the spelling of version 0.1.0, which must stay readable for good.
"""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

from tests.golden import cases


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        cases.write_arrays(root)
        listed = [{**each, "id": cases.run_id(each["spec"], root)} for each in cases.specs()]
        _write(cases.SPECS, listed)
        for each in cases.runs():
            _keep_run(cases.train(each["spec"], root / "runs"), cases.RUNS / each["name"])
        cases.run_study(root / "study")
        _keep_study(root / "study", cases.STUDY)
        cases.TABLES.mkdir(exist_ok=True)
        for file, text in cases.tables(root / "study").items():
            (cases.TABLES / file).write_text(text)
        _write(cases.PAGE, cases.page(cases.STUDY, root / "page.html"))
        _write(cases.STATUS, cases.status(cases.OLD / "finished") + cases.status(cases.OLD / "interrupted"))
    _write(cases.MACHINE, cases.machine())


def _keep_run(folder, place):
    for file in cases.FILES:
        shutil.copyfile(folder / file, place / file)
    tensors = cases.last_tensors(folder)
    _write(place / cases.TENSORS, cases.described(tensors))
    np.savez_compressed(place / cases.WEIGHTS, **cases.weights(tensors))


def _keep_study(folder, place):
    if place.exists():
        shutil.rmtree(place)
    left_out = shutil.ignore_patterns("lock", "*.lock", "*.safetensors", "timings.jsonl", "failed", ".*")
    shutil.copytree(folder, place, ignore=left_out)


def _write(path, value):
    """A list or an object with one item on each line, so that changes can be read."""
    if isinstance(value, list):
        lines = [json.dumps(each, sort_keys=True) for each in value]
    else:
        lines = [f"{json.dumps(key)}: {json.dumps(each, sort_keys=True)}" for key, each in value.items()]
    first, last = "[]" if isinstance(value, list) else "{}"
    path.write_text(f"{first}\n" + ",\n".join(lines) + f"\n{last}\n")


if __name__ == "__main__":
    main()
