"""What is done with whole batches: listed, compared, brought back, staged and audited."""
