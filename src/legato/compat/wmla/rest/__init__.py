"""The REST interface of Watson Machine Learning Accelerator, as a plugin of the server."""
