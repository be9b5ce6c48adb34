"""Each system that is judged, with the verbs that it has."""
