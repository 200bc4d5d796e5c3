"""From a PyTorch model to the graph of blocks that is partitioned."""
