"""What the losses are made of. Nothing here is a loss."""
