"""Drills: steady confirmed traffic, a fault, and an account of every message."""
