"""What is wrong with a matrix in files: judged for people, without a daemon. Pure."""
