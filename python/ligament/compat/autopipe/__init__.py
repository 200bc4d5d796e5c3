"""FTPipe's package on Ligament's partitioner."""

from ligament.compat.autopipe.autopipe.api import pipe_model

__all__ = ["pipe_model"]
