"""`SurefootCallback` on a real `transformers.Trainer`, with a tiny model made here; nothing is downloaded."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import pytest
import torch
from torch.utils.data import Dataset
from transformers import BatchEncoding, BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import surefoot as sf
from surefoot.errors import BadInput
from surefoot.integrations.huggingface import Logits, SurefootCallback
from surefoot.runs.records import read_journal


def rows(n, seed):
    """Texts of eight tokens, some padded; the class is that of the token that comes most often."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 12, (n, 8), generator=random)
    mask = torch.ones_like(ids)
    mask[::3, 6:] = 0
    ids *= mask
    counts = torch.stack([((ids % 3 == c) & (mask == 1)).sum(1) for c in range(3)], 1)
    return {"input_ids": ids, "attention_mask": mask, "labels": counts.argmax(1)}


class Rows(Dataset):
    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        return len(self.columns["labels"])

    def __getitem__(self, index):
        return {name: column[index] for name, column in self.columns.items()}


TRAIN, TEST = rows(48, 0), rows(24, 1)


def network():
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(BertConfig(vocab_size=12, max_position_embeddings=8, num_labels=3, **shape))


def fit(out, *callbacks, optimizer=None, resume=None, model=None, **options):
    settings = {"num_train_epochs": 2, "save_strategy": "no", "learning_rate": 1e-3} | options
    args = TrainingArguments(
        out, per_device_train_batch_size=8, use_cpu=True, report_to="none", disable_tqdm=True, seed=3, **settings
    )
    model = network() if model is None else model
    made = (None, None) if optimizer is None else (optimizer(model.parameters()), None)
    Trainer(model, args, train_dataset=Rows(TRAIN), callbacks=list(callbacks), optimizers=made).train(
        resume_from_checkpoint=resume
    )
    return model


def same(a, b):
    return all(torch.equal(u, v) for u, v in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def steps(callback):
    return [reading["step"] for reading in callback.tracker.readings]


def test_the_run_is_the_same_with_and_without_it(tmp_path):
    callback = SurefootCallback(TRAIN, TEST, every=5, out=tmp_path / "journal")
    model = fit(tmp_path, callback)
    assert same(model, fit(tmp_path))
    assert steps(callback) == [0, 5, 10]
    assert len(read_journal(tmp_path / "journal" / "journal.jsonl")[0]) == 3
    reading = callback.tracker.read(12, everything=True)
    with torch.no_grad():
        logits = model.eval()(TEST["input_ids"], TEST["attention_mask"]).logits
    p = sf.Predictions(logits, TEST["labels"])
    assert reading["test.ece"] == pytest.approx(float(sf.metrics.ece(p)), abs=1e-6)
    assert reading["sharpness"] > 0


@pytest.mark.parametrize("options", [{"gradient_accumulation_steps": 3}, {"bf16": True}], ids=["accumulated", "bf16"])
def test_accumulation_and_bfloat16(options, tmp_path):
    callback = SurefootCallback(TRAIN, TEST, every=2)
    model = fit(tmp_path, callback, **options)
    assert same(model, fit(tmp_path, **options))
    assert steps(callback) == list(range(0, 5 if "bf16" not in options else 13, 2))


def test_readings_are_in_the_precision_of_the_weights(tmp_path):
    callback = SurefootCallback(TRAIN, TEST, every={"calibration": 12})
    model = fit(tmp_path, callback, bf16=True)
    fresh = network()
    fresh.load_state_dict(model.state_dict())
    stacked = torch.stack([TEST["input_ids"], TEST["attention_mask"]], 1)
    p = sf.Predictions.of(Logits(fresh, ("input_ids", "attention_mask")), stacked, TEST["labels"])
    assert callback.tracker.readings[-1]["test.nll"] == float(sf.metrics.nll(p))


def test_a_resumed_training_goes_on_in_the_journal_to_the_bit(tmp_path):
    def callback(name):
        return SurefootCallback(TRAIN, TEST, every=3, out=tmp_path / name)

    saving = {"save_strategy": "steps", "save_steps": 4}
    whole = fit(tmp_path / "a", callback("whole"), **saving)
    fit(tmp_path / "b", callback("parts"), **saving)
    again = callback("parts")
    resumed = fit(tmp_path / "b", again, resume=str(tmp_path / "b" / "checkpoint-4"), **saving)
    assert steps(again) == [6, 9, 12]
    assert same(whole, resumed)
    journals = [(tmp_path / name / "journal.jsonl").read_bytes() for name in ("whole", "parts")]
    assert journals[0] == journals[1]


def test_a_checkpoint_made_without_it_begins_at_its_step(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 4}
    fit(tmp_path, **saving)
    callback = SurefootCallback(TRAIN, TEST, every=4)
    fit(tmp_path, callback, resume=str(tmp_path / "checkpoint-4"), **saving)
    assert steps(callback) == [4, 8, 12]


def test_rules_of_one_gradient_work_and_those_of_two_are_refused(tmp_path):
    def sam(parameters):
        return sf.optim.SAM(torch.optim.SGD(parameters, lr=0.1))

    with pytest.raises(BadInput, match="without a closure"):
        fit(tmp_path, SurefootCallback(TRAIN, TEST), optimizer=sam)
    with pytest.raises(BadInput, match="needs a closure"):
        fit(tmp_path, optimizer=sam)
    callback = SurefootCallback(TRAIN, TEST, every={"calibration": 12})
    fit(tmp_path, callback, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    assert callback.tracker.readings[0]["threshold"] == 4.0


@pytest.mark.parametrize("form", [Rows, BatchEncoding, lambda columns: list(Rows(columns))])
def test_forms_of_rows(form):
    given, plain = SurefootCallback(form(TRAIN), form(TEST)), SurefootCallback(TRAIN, TEST)
    assert given._names == plain._names == ("input_ids", "attention_mask")
    assert all(torch.equal(a, b) for a, b in zip(given._train, plain._train, strict=True))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"labels": TEST["labels"]}, "labels alone"),
        ({"input_ids": TEST["input_ids"]}, "'labels'"),
        ({"input_ids": [[1, 2], [3]], "labels": [0, 1]}, "padded to one length"),
        ([{"input_ids": [1, 2], "labels": 0}, {"input_ids": [3], "labels": 1}], "padded to one length"),
        ({"input_ids": TEST["input_ids"], "weight": torch.ones(24), "labels": TEST["labels"]}, "alike in shape"),
        ({"input_ids": TEST["input_ids"], "labels": TEST["labels"]}, "must have the columns of train"),
        (7, "a mapping of columns"),
    ],
)
def test_rows_that_cannot_be_read(wrong, match):
    with pytest.raises(BadInput, match=match):
        SurefootCallback(TRAIN, wrong)


def test_logits_of_models_that_answer_with_tuples():
    model, stacked = network().eval(), torch.stack([TEST["input_ids"], TEST["attention_mask"]], 1)
    expected = Logits(model, ("input_ids", "attention_mask"))(stacked)
    model.config.return_dict = False
    assert torch.equal(Logits(model, ("input_ids", "attention_mask"))(stacked), expected)
    headless = Logits(network().bert, ("input_ids", "attention_mask"))
    with pytest.raises(BadInput, match="an output with logits, as classifiers do; got BaseModelOutput"):
        headless(stacked)


def test_any_loss_reads_as_its_name_does(tmp_path):
    """torch's own loss, as everywhere; tests/test_loss.py has the table."""
    given = (torch.nn.CrossEntropyLoss(reduction="none"), sf.losses.CrossEntropy(), "ce")
    callbacks = [SurefootCallback(TRAIN, TEST, every=12, loss=loss) for loss in given]
    fit(tmp_path, *callbacks)
    first, *others = (callback.tracker.readings for callback in callbacks)
    assert all(readings == first for readings in others)
