"""The models that are compared: a configuration in, accuracy out."""
