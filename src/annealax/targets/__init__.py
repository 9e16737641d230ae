"""Targets: densities with known answers, and models from applications."""

from annealax.targets._base import AbstractTarget as AbstractTarget
