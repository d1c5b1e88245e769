"""Read the curvature of your own model on your own data, in five lines."""

import torch

import surefoot as sf

model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3))
inputs, labels = torch.randn(500, 20), torch.randint(0, 3, (500,))

reading = sf.curvature.Sharpness(model, inputs).read(verify=True)
print(f"Gauss-Newton sharpness {reading.value:.4f}, an eigenvalue within {reading.residual:.4f}")
hessian = sf.curvature.Hessian(model, inputs, labels)
print("largest Hessian eigenvalues", hessian.top(3).values.tolist())
print("smallest Hessian eigenvalue", float(hessian.bottom(1).values[0]))
