"""Images of profiles: how they are built, and whether they are here."""
