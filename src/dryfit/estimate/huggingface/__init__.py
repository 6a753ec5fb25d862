"""A Hugging Face config.json: the shapes of the common architectures by arithmetic, of others by building them."""

from dryfit.estimate.huggingface.config import config_file, model_of_config

__all__ = ["config_file", "model_of_config"]
