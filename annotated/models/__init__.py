"""What came before and after the Transformer, on the same blocks, one file each."""
