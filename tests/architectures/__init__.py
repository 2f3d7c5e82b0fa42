"""Tiny random encoders of many architectures, and what each method of the package makes of them."""
