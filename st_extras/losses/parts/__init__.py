"""Parts of the losses; none of them is a loss."""
