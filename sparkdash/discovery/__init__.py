"""Discovery: which other programs of this box already serve models. Looking changes nothing and takes seconds."""
