"""Options and input files that several verbs share."""
