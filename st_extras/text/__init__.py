"""Text preparation: frequency tables, keywords, phrases and augmentation. No models in here."""
