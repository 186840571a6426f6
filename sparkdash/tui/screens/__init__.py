"""Pages and dialogs: which panels stand together, and what a page's own keys do."""
