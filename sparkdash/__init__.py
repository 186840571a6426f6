"""sparkdash: a terminal dashboard and hot-swap OpenAI gateway for the NVIDIA DGX Spark."""

__version__ = "0.1.0"
