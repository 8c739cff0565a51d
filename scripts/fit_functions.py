#!/usr/bin/env python3
# requires: numpy
"""Coefficients of src/numerics/functions.cpp: minimax polynomials by Lawson's iteration, rounded to
float one after another from the highest power down, the rest fitted again after each.

    python3 scripts/fit_functions.py
"""
import numpy as np


def minimax(x, target, weight, powers):
    """Weighted minimax coefficients of `powers` on the points x (Lawson 1961)."""
    basis = np.stack([x**p for p in powers], axis=1)
    importance = np.ones_like(x)
    for _ in range(300):
        root = np.sqrt(importance) * weight
        c = np.linalg.lstsq(basis * root[:, None], target * root, rcond=None)[0]
        error = np.abs(basis @ c - target) * weight
        importance *= error / error.max() + 1e-3
        importance /= importance.sum()
    return c, error.max()


def fit(name, x, target, weight, degree):
    coefficients = {}
    left = list(range(degree + 1))
    rest = target.copy()
    while left:
        c, error = minimax(x, rest, weight, left)
        top = left.pop()
        coefficients[top] = float(np.float32(c[-1]))
        rest = rest - coefficients[top] * x**top
    error = np.max(np.abs(rest) * weight)
    print(f"{name}: largest error {error:.2e} = 2^{np.log2(error):.1f}")
    for power in range(degree, -1, -1):
        print(f"  x^{power}: {coefficients[power].hex()}f")


def chebyshev(low, high, n=3000):
    return (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(n) + 0.5) / n)


x = chebyshev(-0.3475, 0.3475)
x = x[np.abs(x) > 1e-4].astype(np.longdouble)
fit("(exp(x) - 1 - x) / x^2", x.astype(float), ((np.expm1(x) - x) / (x * x)).astype(float),
    (x * x / np.exp(x)).astype(float), 4)
x = chebyshev(-0.3335, 0.3335)
x = x[np.abs(x) > 1e-4].astype(np.longdouble)
fit("(log1p(x) - x) / x^2", x.astype(float), ((np.log1p(x) - x) / (x * x)).astype(float),
    (x * x / np.abs(np.log1p(x))).astype(float), 8)
x = chebyshev(1e-3, 0.552)
x = x.astype(np.longdouble)
fit("(tanh(x) - x) / x^3, in x^2", (x * x).astype(float), ((np.tanh(x) - x) / x**3).astype(float),
    (x * x * x / np.tanh(x)).astype(float), 5)
