"""IBM Watson Machine Learning Accelerator: its Python interface, its REST and its command, on jobs of Legato."""
