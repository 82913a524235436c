"""The REST of Watson Machine Learning Accelerator, as a guest of the server."""
