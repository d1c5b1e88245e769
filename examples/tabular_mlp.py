"""An MLP on a table, beside a forest of scikit-learn; the MLP's loop is watched by three lines, marked below.

Run it: ``python examples/tabular_mlp.py``
"""

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot as sf


def main() -> None:
    """Train both and compare what they claim with what they deliver."""
    torch.manual_seed(0)
    table, labels = load_breast_cancer(return_X_y=True)
    parts = train_test_split(table, labels, test_size=0.4, random_state=0, stratify=labels)
    scale = StandardScaler().fit(parts[0])
    x, x_test = (torch.tensor(scale.transform(part), dtype=torch.float32) for part in parts[:2])
    y, y_test = (torch.tensor(part) for part in parts[2:])

    model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    step = 0
    with sf.Tracker(model, (x, y), (x_test, y_test), optimizer=opt, every=55, batch_size=32) as tracker:  # 1
        for _ in range(20):
            for inputs, answers in loader:
                opt.zero_grad()
                nn.functional.cross_entropy(model(inputs), answers).backward()
                opt.step()
                tracker.step(step)  # 2
                step += 1

    print(" step  test acc  test ece  smallest train margin")
    for r in tracker.readings:  # 3
        print(f"{r['step']:5d} {r['test.accuracy']:9.3f} {r['test.ece']:9.3f} {r['train.margin_min']:10.2f}")

    forest = RandomForestClassifier(200, random_state=0).fit(parts[0], parts[2])
    for name, p in {
        "mlp": sf.Predictions.of(model, x_test, y_test),
        "forest": sf.Predictions.of(forest, parts[1], parts[3]),  # anything with predict_proba
    }.items():
        print(
            f"{name:6} accuracy {sf.metrics.accuracy(p):.3f}, ece {sf.metrics.ece(p):.3f}, nll {sf.metrics.nll(p):.3f}"
        )


if __name__ == "__main__":
    main()
