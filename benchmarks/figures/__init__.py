"""What only a figure or a table of a paper needs: a measure of an encoder, and how it is drawn."""
