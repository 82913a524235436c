"""Runs programs for IBM Watson Machine Learning Accelerator: its Python interface, REST interface and command."""
