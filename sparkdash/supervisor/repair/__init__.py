"""Watch over resident engines: deaths are noticed, stuck engines are repaired, incidents are kept."""
